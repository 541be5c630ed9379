#pragma once
// NF4 and int8 rows times 1 to 8 tokens in integers. Formula and formats: int8_matvec_kernels.h.
// Included after simd_<set>.h and the header that defines Int8MatvecSimd: see cpu_kernels.h.

#include "kernels/cpu/weights/int8_matvec_kernels.h"

namespace longhand::kernels {
namespace {

// How far ahead of the codes in use the next ones are asked for: the processor's own prefetchers
// stop at each page of 4 KiB and left a fifth of the bandwidth unused.
inline constexpr std::int64_t kInt8PrefetchBytes = 12 * 1024;
// The same for the scales, of which a row has only a line or two: without it each row waited for
// them, and a quarter of the time was lost.
inline constexpr std::int64_t kScalePrefetchBytes = 1024;

// Stores a block's integers and returns their sum.
template <typename Form>
std::int32_t storeInt8Input(const float* numbers, float inverseScale, std::int64_t block,
                            std::int64_t token, const Int8MatvecInput& input) {
  Int8MatvecSimd::Bytes digits[Form::Input::kDigits];
  Form::Input::round(numbers, inverseScale, digits);
  std::int8_t* chunk =
      input.bytes + (block / Form::kChunkBlocks * input.nTokens + token) * Form::kChunkInputs;
  std::int32_t sum = 0;
  for (const Int8MatvecSimd::Bytes& digit : digits) {
    Form::storeBytes(digit, block, chunk);
    chunk += Form::kChunkNumbers;
    sum = Form::Input::kRadix * sum + Int8MatvecSimd::sum(digit);
  }
  return sum;
}

template <typename Form>
void int8Quantize(const float* numbers, std::int64_t nBlocks, std::int64_t token,
                  const Int8MatvecInput& input) {
  float* const scales = input.scales + token * input.scaleStride;
  float* const sums = input.sums + token * input.scaleStride;
  for (std::int64_t block = 0; block < nBlocks; ++block) {
    const float* const x = numbers + block * kNf4BlockSize;
    const float largest = Int8MatvecSimd::largestMagnitude(x);
    const bool isZero = largest < 1e-30F;  // false for NaN
    const float scale = isZero ? 0.0F : largest / Form::Input::kLargestNumber;
    const float inverse = isZero ? 0.0F : Form::Input::kLargestNumber / largest;
    scales[block] = scale;
    sums[block] = scale * static_cast<float>(storeInt8Input<Form>(x, inverse, block, token, input));
  }
  for (std::int64_t block = nBlocks; block < input.scaleStride; ++block) {
    scales[block] = 0.0F;
    sums[block] = 0.0F;
  }
}

// absmax of one row's blocks as floats.
inline const float* int8RowAbsmax(const WeightView& weight,
                                  const Int8MatvecSimd::NestedCodebook& nested, std::int64_t row,
                                  float* buffer) {  // [nBlocks + 64]
  const std::int64_t nBlocks = weight.cols / kNf4BlockSize;
  const std::int64_t firstBlock = row * nBlocks;
  if (weight.absmax != nullptr) return weight.absmax + firstBlock;
  constexpr std::int64_t kRun = Int8MatvecSimd::kAbsmaxRun;
  static_assert(kRun <= 32 && kNf4NestedBlockSize % kRun == 0);
  const std::int64_t start = firstBlock / kRun * kRun;
  const std::int64_t end = firstBlock + nBlocks;
  for (std::int64_t block = start; block < end; block += kRun) {
    const std::int64_t count = end - block < kRun ? end - block : kRun;
    __builtin_prefetch(weight.absmaxCodes + block + kScalePrefetchBytes);
    Int8MatvecSimd::decodeAbsmax(nested, weight.absmaxCodes + block, count,
                                 weight.nestedAbsmax[block / kNf4NestedBlockSize],
                                 weight.nestedOffset, buffer + (block - start));
  }
  return buffer + (firstBlock - start);
}

// What differs between the types of weights: how a chunk is loaded and multiplied, and its scales.
// Input is a type of Int8MatvecSimd, the digits of the input's integers.
template <typename InputType>
struct Nf4Form {
  using Input = InputType;
  static constexpr std::int64_t kChunkBlocks = Int8MatvecSimd::kChunkBlocks;
  static constexpr std::int64_t kChunkBytes = kChunkBlocks * kNf4BlockSize / 2;
  static constexpr std::int64_t kChunkNumbers = kChunkBlocks * kNf4BlockSize;
  static constexpr std::int64_t kChunkInputs = Input::kDigits * kChunkNumbers;  // bytes
  using Chunk = Int8MatvecSimd::Weights;

  explicit Nf4Form(const Int8MatvecJob& job)
      : codebook(Int8MatvecSimd::loadCodebook(job.codebook.bytes)) {
    if (job.weight.absmax == nullptr) {
      Int8MatvecSimd::loadNestedCodebook(job.weight.nestedCodebook, nested);
    }
  }
  const float* rowScales(const WeightView& weight, std::int64_t row, float* buffer) const {
    return int8RowAbsmax(weight, nested, row, buffer);
  }
  Chunk load(const std::uint8_t* codes) const {
    return Int8MatvecSimd::loadWeights(codes, codebook);
  }
  Chunk loadFirstBlock(const std::uint8_t* codes) const {
    return Int8MatvecSimd::loadFirstBlock(codes, codebook);
  }
  static Simd::Float dot(const Chunk& weights, const std::int8_t* input) {
    return Input::dot(weights, input);
  }
  static Simd::Float spread(const float* scales) { return Int8MatvecSimd::spread(scales); }
  // The second half of a last chunk of one block meets weight bytes of anything but its scale is 0.
  static void storeBytes(const Int8MatvecSimd::Bytes& bytes, std::int64_t block,
                         std::int8_t* chunk) {  // [kChunkNumbers], of one digit
    std::int8_t* const even = chunk + block % kChunkBlocks * (kNf4BlockSize / 2);
    Int8MatvecSimd::storePairs(bytes, even, even + kChunkNumbers / 2);
  }

  Int8MatvecSimd::Codebook codebook;
  Int8MatvecSimd::NestedCodebook nested;
};

template <typename InputType>
struct Int8Form {
  using Input = InputType;
  static constexpr std::int64_t kChunkBlocks = 1;
  static constexpr std::int64_t kChunkBytes = kInt8BlockSize;
  static constexpr std::int64_t kChunkNumbers = kInt8BlockSize;
  static constexpr std::int64_t kChunkInputs = Input::kDigits * kChunkNumbers;
  using Chunk = Int8MatvecSimd::Int8Weights;

  explicit Int8Form(const Int8MatvecJob&) {}
  static const float* rowScales(const WeightView& weight, std::int64_t row, float*) {
    constexpr std::int64_t kLine = 64 / std::int64_t{sizeof(float)};
    const std::int64_t nBlocks = weight.cols / kInt8BlockSize;
    const float* const scales = weight.scales + row * nBlocks;
    for (std::int64_t b = 0; b < nBlocks; b += kLine) {
      __builtin_prefetch(scales + b + kScalePrefetchBytes / std::int64_t{sizeof(float)});
    }
    return scales;
  }
  static Chunk load(const std::uint8_t* codes) { return Int8MatvecSimd::loadInt8Weights(codes); }
  static Chunk loadFirstBlock(const std::uint8_t* codes) { return load(codes); }
  static Simd::Float dot(const Chunk& weights, const std::int8_t* input) {
    return Input::dotInt8(weights, input);
  }
  static Simd::Float spread(const float* scales) { return Simd::broadcast(*scales); }
  static void storeBytes(const Int8MatvecSimd::Bytes& bytes, std::int64_t /*block*/,
                         std::int8_t* chunk) {
    Int8MatvecSimd::store(bytes, chunk);
  }
};

// products[t, b] = absmax[b] * scales[t, b]; returns in sums[t] lanes that add up to
// sum_b absmax[b] * sums[t, b].
template <int kTokens>
void int8Weigh(const float* absmax, std::int64_t nBlocks, const Int8MatvecInput& input,
               float* products,  // [kTokens, scaleStride]
               Simd::Float (&sums)[kTokens]) {
  for (int t = 0; t < kTokens; ++t) sums[t] = Simd::zero();
  static_assert(16 % Simd::kLanes == 0);
  for (std::int64_t b = 0; b < input.scaleStride; b += Simd::kLanes) {
    const std::int64_t count = nBlocks - b;
    const Simd::Float a = count >= Simd::kLanes ? Simd::load(absmax + b)
                          : count > 0           ? loadFirst(absmax + b, count)
                                                : Simd::zero();
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const std::int64_t at = t * input.scaleStride + b;
      Simd::store(products + at, Simd::multiply(a, Simd::load(input.scales + at)));
      sums[t] = Simd::multiplyAdd(a, Simd::load(input.sums + at), sums[t]);
    }
  }
}

template <typename Form, int kTokens, int kRows>
void int8Rows(const Int8MatvecJob& job, const Form& form, std::int64_t row, float* scratch) {
  static_assert(kRows <= kInt8MatvecRows);
  const std::int64_t nBlocks = job.weight.cols / kNf4BlockSize;
  const std::int64_t rowBytes = nBlocks * (Form::kChunkBytes / Form::kChunkBlocks);
  const std::int64_t stride = job.input.scaleStride;
  const std::uint8_t* const codes =
      static_cast<const std::uint8_t*>(static_cast<const void*>(job.weight.data)) + row * rowBytes;
  float* const products = scratch;                                 // [kRows, kTokens, stride]
  float* const absmaxBuffer = scratch + kRows * kTokens * stride;  // [nBlocks + 64]

  Simd::Float sums[kTokens][kRows];
  const Simd::Float minusZero = Simd::broadcast(-job.codebook.zero);
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
    Simd::Float inputSums[kTokens];
    int8Weigh<kTokens>(form.rowScales(job.weight, row + r, absmaxBuffer), nBlocks, job.input,
                       products + r * kTokens * stride, inputSums);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sums[t][r] = Simd::multiply(inputSums[t], minusZero);
  }

  const std::uint8_t* ahead = codes + kInt8PrefetchBytes;
  typename Form::Chunk weights[kRows];
  const auto addChunk = [&](std::int64_t chunk) {
    const std::int8_t* const input = job.input.bytes + chunk * kTokens * Form::kChunkInputs;
    const float* const scales = products + chunk * Form::kChunkBlocks;
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
      for (int r = 0; r < kRows; ++r) {
        sums[t][r] =
            Simd::multiplyAdd(Form::dot(weights[r], input + t * Form::kChunkInputs),
                              Form::spread(scales + (r * kTokens + t) * stride), sums[t][r]);
      }
    }
  };
  const std::int64_t nWhole = nBlocks / Form::kChunkBlocks;
  for (std::int64_t chunk = 0; chunk < nWhole; ++chunk) {
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) {
      __builtin_prefetch(ahead);
      ahead += Form::kChunkBytes;
      weights[r] = form.load(codes + r * rowBytes + chunk * Form::kChunkBytes);
    }
    addChunk(chunk);
  }
  if (nWhole * Form::kChunkBlocks < nBlocks) {
    for (int r = 0; r < kRows; ++r) {
      weights[r] = form.loadFirstBlock(codes + r * rowBytes + nWhole * Form::kChunkBytes);
    }
    addChunk(nWhole);
  }

#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) {
      float* const output = job.output + t * job.outputStride + row + r;
      const float sum = job.codebook.step * Simd::sum(sums[t][r]);
      *output = job.accumulate ? *output + sum : sum;
    }
  }
}

// Rows that are taken together share the loads of the input. Their codes are neighbours in memory
// and asked for in its order, so that it is read in one line.
template <typename Form, int kTokens>
void int8Matvec(const Int8MatvecJob& job, std::int64_t firstRow, std::int64_t lastRow,
                float* scratch) {
  constexpr int kRows = Int8MatvecSimd::rowsFor(kTokens);
  const Form form(job);
  std::int64_t row = firstRow;
  for (; row + kRows <= lastRow; row += kRows) {
    int8Rows<Form, kTokens, kRows>(job, form, row, scratch);
  }
  for (; row < lastRow; ++row) int8Rows<Form, kTokens, 1>(job, form, row, scratch);
}

// For up to kTokens tokens.
template <template <typename> typename Form, int kTokens>
void int8Multiply(const Int8MatvecJob& job, std::int64_t firstRow, std::int64_t lastRow,
                  float* scratch) {
  if constexpr (kTokens > 0) {
    if (job.input.nTokens == kTokens) {
      using FormOfInput = Form<Int8MatvecSimd::InputOf<kTokens>>;
      return int8Matvec<FormOfInput, kTokens>(job, firstRow, lastRow, scratch);
    }
    int8Multiply<Form, kTokens - 1>(job, firstRow, lastRow, scratch);
  }
}

template <template <typename> typename Form, int kTokens>
void int8QuantizeToken(const float* numbers, std::int64_t nBlocks, std::int64_t token,
                       const Int8MatvecInput& input) {
  if constexpr (kTokens > 0) {
    if (input.nTokens == kTokens) {
      return int8Quantize<Form<Int8MatvecSimd::InputOf<kTokens>>>(numbers, nBlocks, token, input);
    }
    int8QuantizeToken<Form, kTokens - 1>(numbers, nBlocks, token, input);
  }
}

template <template <typename> typename Form>
inline constexpr Int8MatvecForm kInt8MatvecForm = {
    .chunkBlocks = Form<Int8MatvecSimd::InputOf<1>>::kChunkBlocks,
    .quantize = int8QuantizeToken<Form, kMaxInt8MatvecTokens>,
    .multiply = int8Multiply<Form, kMaxInt8MatvecTokens>};

template <int kTokens>
inline constexpr Int8InputDigits kInt8InputDigits = {
    .count = Int8MatvecSimd::InputOf<kTokens>::kDigits,
    .largestNumber = Int8MatvecSimd::InputOf<kTokens>::kLargestNumber};

inline constexpr Int8MatvecKernels kInt8MatvecKernels = {
    .digits = {kInt8InputDigits<1>, kInt8InputDigits<2>, kInt8InputDigits<3>, kInt8InputDigits<4>,
               kInt8InputDigits<5>, kInt8InputDigits<6>, kInt8InputDigits<7>, kInt8InputDigits<8>},
    .nf4 = kInt8MatvecForm<Nf4Form>,
    .int8 = kInt8MatvecForm<Int8Form>};
static_assert(kMaxInt8MatvecTokens == 8);

}  // namespace
}  // namespace longhand::kernels
