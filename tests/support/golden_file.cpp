#include "tests/support/golden_file.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace longhand::tests {
namespace {

template <typename T>
T read(const std::uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

double halfToDouble(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * fraction * 0x1p-24;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : NAN;
  return sign * (1024 + fraction) * std::ldexp(1.0, exponent - 25);
}

double bfloatToDouble(std::uint16_t value) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U));
}

}  // namespace

std::int64_t GoldenTensor::count() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::vector<double> GoldenTensor::doubles() const {
  std::vector<double> result;
  const auto n = static_cast<std::size_t>(count());
  result.reserve(n);
  const std::size_t step = n == 0 ? 1 : bytes.size() / n;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint8_t* at = bytes.data() + i * step;
    if (type == "F64")
      result.push_back(read<double>(at));
    else if (type == "F32")
      result.push_back(static_cast<double>(read<float>(at)));
    else if (type == "F16")
      result.push_back(halfToDouble(read<std::uint16_t>(at)));
    else if (type == "BF16")
      result.push_back(bfloatToDouble(read<std::uint16_t>(at)));
    else if (type == "I64")
      result.push_back(static_cast<double>(read<std::int64_t>(at)));
    else if (type == "I32")
      result.push_back(read<std::int32_t>(at));
    else if (type == "U8")
      result.push_back(*at);
    else if (type == "I8")
      result.push_back(read<std::int8_t>(at));
    else
      throw std::runtime_error("golden tensor of unknown type " + type);
  }
  return result;
}

std::vector<float> GoldenTensor::floats() const {
  const std::vector<double> values = doubles();
  std::vector<float> result;
  result.reserve(values.size());
  for (const double value : values) result.push_back(static_cast<float>(value));
  return result;
}

std::vector<std::int32_t> GoldenTensor::ints() const {
  const std::vector<double> values = doubles();
  std::vector<std::int32_t> result;
  result.reserve(values.size());
  for (const double value : values) result.push_back(static_cast<std::int32_t>(value));
  return result;
}

GoldenFile::GoldenFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  const std::vector<std::uint8_t> data{std::istreambuf_iterator<char>(file),
                                       std::istreambuf_iterator<char>()};
  const auto headerBytes = static_cast<std::size_t>(read<std::uint64_t>(data.data()));
  const auto body = data.begin() + 8 + static_cast<std::ptrdiff_t>(headerBytes);
  const auto header = nlohmann::json::parse(data.begin() + 8, body);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto offsets = entry.at("data_offsets").get<std::vector<std::ptrdiff_t>>();
    GoldenTensor tensor;
    tensor.type = entry.at("dtype").get<std::string>();
    tensor.shape = entry.at("shape").get<std::vector<std::int64_t>>();
    tensor.bytes.assign(body + offsets.at(0), body + offsets.at(1));
    tensors_.emplace(name, std::move(tensor));
  }
}

const GoldenTensor& GoldenFile::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw std::out_of_range("no golden tensor " + name);
  return found->second;
}

std::vector<std::string> GoldenFile::names() const {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : tensors_) result.push_back(name);
  return result;
}

}  // namespace longhand::tests
