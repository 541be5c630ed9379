#pragma once
// The vocabulary of the kernels: number types, views of matrices and weights, and the formats of
// the KV cache. Views never own memory; their pointers are addresses of the backend that made the
// memory (for the CPU backends: ordinary addresses).

#include <cstddef>
#include <cstdint>

namespace longhand::kernels {

enum class DataType : std::uint8_t { kF32, kF16, kBF16, kNf4, kInt8 };

/// Row-major float matrix, one row per token. Rows are `stride` floats apart (stride >= cols).
struct MatrixView {
  float* data = nullptr;  // [rows, stride]
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  /// Rows [first, first + count).
  MatrixView slice(std::int64_t first, std::int64_t count) const {
    return {data + first * stride, count, cols, stride};
  }
};

/// Values that share one NF4 absmax, counted along the flattened matrix (QLoRA, section 3).
inline constexpr std::int64_t kNf4BlockSize = 64;
/// Values that share one scale of int8 weights, counted like those of NF4.
inline constexpr std::int64_t kInt8BlockSize = 64;
/// NF4 absmax values that share one nested absmax (double quantization).
inline constexpr std::int64_t kNf4NestedBlockSize = 256;

/// A weight matrix W [rows = outputs, cols = inputs], row-major.
///
/// kF32, kF16, kBF16: `data` holds the numbers.
/// kInt8: `data` holds [rows * cols] signed bytes; weight[i] = data[i] * scales[i /
/// kInt8BlockSize]. Blocks run over the flattened matrix, as NF4's do. kNf4: `data` holds
/// [ceil(rows * cols / 2)] bytes of codes in the order of the flattened matrix, the first code in
/// the HIGH nibble, as bitsandbytes stores them; blocks of kNf4BlockSize run over the flattened
/// matrix, so a row may end inside a block when cols is no multiple of it. weight[i] =
/// codebook[code[i]] * absmax(i / kNf4BlockSize), where absmax(b) is
///   absmax[b]                                                               (absmax != nullptr)
///   nestedCodebook[absmaxCodes[b]] * nestedAbsmax[b / kNf4NestedBlockSize] + nestedOffset   (else)
struct WeightView {
  DataType type = DataType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::byte* data = nullptr;
  const float* scales = nullptr;              // [n_blocks], kInt8
  const float* codebook = nullptr;            // [16], kNf4 from here on
  const float* absmax = nullptr;              // [n_blocks], or nullptr with double quantization
  const std::uint8_t* absmaxCodes = nullptr;  // [n_blocks]
  const float* nestedAbsmax = nullptr;        // [ceil(n_blocks / 256)]
  const float* nestedCodebook = nullptr;      // [256]
  float nestedOffset = 0.0F;
};

/// One of several products of the same input: output = input * weight^T.
struct Projection {
  WeightView weight;  // [outputs, inputs]
  MatrixView output;  // [n, outputs]
};

/// A token id and its logit.
struct ScoredToken {
  float logit = 0.0F;
  std::int32_t id = -1;

  bool operator==(const ScoredToken&) const = default;
};

/// True of the types whose values share scales in blocks.
constexpr bool isQuantized(DataType type) {
  return type == DataType::kNf4 || type == DataType::kInt8;
}

/// Bytes of `count` values of a type: of the codes alone where isQuantized(). An odd count of NF4
/// fills its last byte.
constexpr std::size_t bytesOf(DataType type, std::int64_t count) {
  const auto n = static_cast<std::size_t>(count);
  switch (type) {
    case DataType::kF32:
      return n * 4;
    case DataType::kF16:
    case DataType::kBF16:
      return n * 2;
    case DataType::kNf4:
      return (n + 1) / 2;
    case DataType::kInt8:
      break;
  }
  return n;
}

}  // namespace longhand::kernels
