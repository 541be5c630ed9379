#include "engine/model/bnb_tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/error_words.h"
#include "kernels/rounding.h"

#include <nlohmann/json.hpp>

namespace longhand::engine {
namespace {

using Json = nlohmann::json;
using kernels::ceilDivide;

constexpr const char* kNf4State = ".quant_state.bitsandbytes__nf4";
constexpr const char* kFp4State = ".quant_state.bitsandbytes__fp4";
constexpr const char* kInt8Scale = ".SCB";
constexpr std::size_t kStateLimitBytes = 64U << 10U;

/// Reads the parts of one quantized weight and refuses what does not fit together.
class BnbReader {
 public:
  BnbReader(const FindCompanion& find, const WeightSpec& spec, const std::string& where)
      : find_(find), spec_(spec), where_(where) {}

  SourceTensor read(const FileTensor& packed) {
    if (find_(kFp4State) != nullptr) {
      unsupported("is quantized as fp4; supported is nf4");
    }
    if (find_(kInt8Scale) != nullptr) {
      unsupported("is quantized to 8 bits by bitsandbytes; supported is nf4");
    }
    const Json state = readState();
    checkState(state);
    const std::int64_t count = spec_.rows * spec_.cols;
    const std::int64_t blocks = ceilDivide(count, kernels::kNf4BlockSize);
    checkPacked(packed, static_cast<std::uint64_t>(ceilDivide(count, 2)));

    result_.where = where_;
    result_.bytes = packed.data.first(static_cast<std::size_t>(ceilDivide(count, 2)));
    result_.fileBytes += packed.data.size();
    kernels::WeightView& view = result_.view;
    view.type = kernels::DataType::kNf4;
    view.rows = spec_.rows;
    view.cols = spec_.cols;
    view.data = result_.bytes.data();
    view.codebook = finiteFloats(".quant_map", 16);
    if (find_(".nested_absmax") == nullptr) {
      view.absmax = floats(".absmax", blocks);
      return std::move(result_);
    }
    const FileTensor& codes = part(".absmax", TensorType::kU8, blocks);
    view.absmaxCodes = reinterpret_cast<const std::uint8_t*>(codes.data.data());
    view.nestedAbsmax = floats(".nested_absmax", ceilDivide(blocks, kernels::kNf4NestedBlockSize));
    view.nestedCodebook = finiteFloats(".nested_quant_map", 256);
    view.nestedOffset = nestedOffset(state);
    return std::move(result_);
  }

 private:
  Json readState() const {
    const FileTensor* tensor = find_(kNf4State);
    if (tensor == nullptr) damaged("is packed to 4 bits, but has no quant_state beside it");
    if (tensor->type != TensorType::kU8 || tensor->data.size() > kStateLimitBytes) {
      damaged("has a quant_state that is no short text");
    }
    const std::string_view text(reinterpret_cast<const char*>(tensor->data.data()),
                                tensor->data.size());
    Json state = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!state.is_object()) damaged("has a quant_state that is not a JSON object");
    return state;
  }

  void checkState(const Json& state) const {
    const auto type = state.find("quant_type");
    if (type != state.end() && *type != "nf4") {
      unsupported("has the quant_type " + quotedName(type->dump()) + "; supported is nf4");
    }
    checkBlockSize(state, "blocksize", kernels::kNf4BlockSize, /*isNeeded=*/true);
    checkBlockSize(state, "nested_blocksize", kernels::kNf4NestedBlockSize,
                   find_(".nested_absmax") != nullptr);
    const auto shape = state.find("shape");
    const Json expected = {spec_.rows, spec_.cols};
    if (shape == state.end()) damaged("has no shape in its quant_state");
    if (*shape != expected) {
      damaged("has the shape " + quotedName(shape->dump()) + " in its quant_state instead of " +
              expected.dump());
    }
  }

  void checkBlockSize(const Json& state, const char* name, std::int64_t expected,
                      bool isNeeded) const {
    const auto size = state.find(name);
    if (size == state.end()) {
      if (isNeeded) damaged(std::string("has no ") + name + " in its quant_state");
      return;
    }
    if (*size != expected) {
      unsupported(std::string("has the ") + name + " " + quotedName(size->dump()) +
                  "; supported is " + std::to_string(expected));
    }
  }

  float nestedOffset(const Json& state) const {
    const auto offset = state.find("nested_offset");
    if (offset == state.end() || !offset->is_number()) {
      damaged("has no nested_offset in its quant_state");
    }
    const auto value = static_cast<float>(offset->get<double>());
    if (!std::isfinite(value)) damaged("has a nested_offset that is no finite number");
    return value;
  }

  /// The packed bytes may be stored as any type (bnb_4bit_quant_storage), filled up to its size.
  void checkPacked(const FileTensor& packed, std::uint64_t bytes) const {
    const std::uint64_t stored = packed.data.size();
    if (stored < bytes || stored - bytes >= tensorTypeBytes(packed.type)) {
      damaged("has " + std::to_string(stored) + " packed bytes instead of " +
              std::to_string(bytes));
    }
  }

  const FileTensor& part(const char* suffix, TensorType type, std::int64_t count) {
    const FileTensor* tensor = find_(suffix);
    if (tensor == nullptr) damaged(std::string("lacks its ") + (suffix + 1));
    const std::uint64_t bytes = static_cast<std::uint64_t>(count) * tensorTypeBytes(type);
    if (tensor->type != type || tensor->data.size() != bytes) {
      damaged(std::string("has a ") + (suffix + 1) + " of type " + tensorTypeName(tensor->type) +
              " and shape " + shapeText(tensor->shape) + " instead of " + std::to_string(count) +
              " values " + tensorTypeName(type));
    }
    result_.fileBytes += tensor->data.size();
    return *tensor;
  }

  /// Straight from the mapping where it is aligned, else a copy.
  const float* floats(const char* suffix, std::int64_t count) {
    const FileTensor& tensor = part(suffix, TensorType::kF32, count);
    const void* address = tensor.data.data();
    if (reinterpret_cast<std::uintptr_t>(address) % alignof(float) == 0) {
      return static_cast<const float*>(address);
    }
    auto& copy = result_.tables.emplace_back(static_cast<std::size_t>(count));
    std::memcpy(copy.data(), address, tensor.data.size());
    return copy.data();
  }

  const float* finiteFloats(const char* suffix, std::int64_t count) {
    const float* values = floats(suffix, count);
    if (!std::all_of(values, values + count, [](float value) { return std::isfinite(value); })) {
      damaged(std::string("has a ") + (suffix + 1) + " with values that are no numbers");
    }
    return values;
  }

  [[noreturn]] void damaged(const std::string& reason) const {
    throw Error(ErrorCode::kFileDamaged, where_ + " " + reason + ".",
                "Download the model again, with all its files.");
  }
  [[noreturn]] void unsupported(const std::string& reason) const {
    throw Error(ErrorCode::kUnsupportedModel, where_ + " " + reason + ".",
                "Get the model in 16 bits; Longhand can make NF4 itself.");
  }

  const FindCompanion& find_;
  const WeightSpec& spec_;
  const std::string& where_;
  SourceTensor result_;
};

}  // namespace

bool isBnbTensor(const FindCompanion& find) {
  for (const char* suffix : {kNf4State, kFp4State, kInt8Scale, ".absmax", ".quant_map"}) {
    if (find(suffix) != nullptr) return true;
  }
  return false;
}

SourceTensor readBnbTensor(const FileTensor& packed, const FindCompanion& find,
                           const WeightSpec& spec, const std::string& where) {
  return BnbReader(find, spec, where).read(packed);
}

}  // namespace longhand::engine
