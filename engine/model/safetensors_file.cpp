#include "engine/model/safetensors_file.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/error_words.h"

#include <nlohmann/json.hpp>

namespace longhand::engine {
namespace {

constexpr std::size_t kLengthBytes = 8;  // of the header's length, little-endian

struct TypeEntry {
  TensorType type;
  const char* name;
  std::size_t bytes;
};

constexpr std::array<TypeEntry, 17> kTypes = {{{TensorType::kBool, "BOOL", 1},
                                               {TensorType::kU8, "U8", 1},
                                               {TensorType::kI8, "I8", 1},
                                               {TensorType::kF8E5M2, "F8_E5M2", 1},
                                               {TensorType::kF8E4M3, "F8_E4M3", 1},
                                               {TensorType::kF8E8M0, "F8_E8M0", 1},
                                               {TensorType::kI16, "I16", 2},
                                               {TensorType::kU16, "U16", 2},
                                               {TensorType::kF16, "F16", 2},
                                               {TensorType::kBF16, "BF16", 2},
                                               {TensorType::kI32, "I32", 4},
                                               {TensorType::kU32, "U32", 4},
                                               {TensorType::kF32, "F32", 4},
                                               {TensorType::kI64, "I64", 8},
                                               {TensorType::kU64, "U64", 8},
                                               {TensorType::kF64, "F64", 8},
                                               {TensorType::kC64, "C64", 8}}};

const TypeEntry& entryOf(TensorType type) { return kTypes[static_cast<std::size_t>(type)]; }

/// What the header says about one tensor, before it is checked against the file.
struct HeaderEntry {
  std::optional<TensorType> type;
  std::optional<std::vector<std::int64_t>> shape;
  std::vector<std::uint64_t> offsets;  // begin, end
  bool hasOffsets = false;
};

/// Receives the header's JSON piece by piece. No document is built, so a header can neither nest
/// deeply nor hide a name that stands twice.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string fileName) : fileName_(std::move(fileName)) {}

  std::map<std::string, HeaderEntry, std::less<>> takeEntries() { return std::move(entries_); }

  bool null() override { refuse("has a null in its header"); }
  bool boolean(bool /*value*/) override { refuse("has a true or false in its header"); }
  bool number_integer(number_integer_t value) override {
    refuse("has the negative number " + std::to_string(value) + " in its header");
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kArray) refuse("has a number where none may stand in its header");
    if (field_ == "shape") {
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        refuse("has a shape that is too large");
      }
      entry_->shape->push_back(static_cast<std::int64_t>(value));
    } else {
      if (entry_->offsets.size() == 2) refuse("has more than two data_offsets");
      entry_->offsets.push_back(value);
    }
    return true;
  }
  bool number_float(number_float_t /*value*/, const string_t& text) override {
    refuse("has the number " + quotedName(text) + " in its header, which is not a whole number");
  }
  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) return true;  // notes of the writer; nothing depends on them
    if (place_ != Place::kTensor || field_ != "dtype") {
      refuse("has a text where none may stand in its header");
    }
    const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                    [&](const TypeEntry& entry) { return value == entry.name; });
    if (found == kTypes.end()) refuse("has the unknown type " + quotedName(value));
    entry_->type = found->type;
    return true;
  }
  bool binary(binary_t& /*value*/) override { refuse("has binary data in its header"); }

  bool start_object(std::size_t /*elements*/) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kRoot;
        return true;
      case Place::kRoot:
        place_ = entry_ == nullptr ? Place::kMetadata : Place::kTensor;
        return true;
      default:
        refuse("has a header that nests deeper than the format does");
    }
  }
  bool key(string_t& name) override {
    if (place_ == Place::kRoot) {
      beginTensor(name);
    } else if (place_ == Place::kTensor) {
      beginField(name);
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (!entry_->type) refuse("has no dtype");
      if (!entry_->shape) refuse("has no shape");
      if (!entry_->hasOffsets) refuse("has no data_offsets");
    }
    place_ = place_ == Place::kRoot ? Place::kStart : Place::kRoot;
    entry_ = nullptr;
    name_.clear();
    return true;
  }
  bool start_array(std::size_t /*elements*/) override {
    if (place_ != Place::kTensor || field_ == "dtype") {
      refuse("has a list where none may stand in its header");
    }
    place_ = Place::kArray;
    if (field_ == "shape") entry_->shape.emplace();
    return true;
  }
  bool end_array() override {
    if (field_ == "data_offsets") {
      if (entry_->offsets.size() != 2) refuse("has not two data_offsets");
      entry_->hasOffsets = true;
    }
    place_ = Place::kTensor;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    name_.clear();
    refuse("has a header that is not valid JSON at byte " +
           std::to_string(position + kLengthBytes));
  }

 private:
  enum class Place { kStart, kRoot, kMetadata, kTensor, kArray };

  void beginTensor(const std::string& name) {
    if (name == "__metadata__") {
      if (std::exchange(hasMetadata_, true)) refuse("has __metadata__ twice");
      return;
    }
    name_ = name;
    const auto [place, isNew] = entries_.try_emplace(name);
    if (!isNew) refuse("stands twice in the header");
    entry_ = &place->second;
  }
  void beginField(const std::string& name) {
    const bool isKnown = name == "dtype" || name == "shape" || name == "data_offsets";
    if (!isKnown) refuse("has the unknown field " + quotedName(name));
    const bool isSecond = (name == "dtype" && entry_->type) || (name == "shape" && entry_->shape) ||
                          (name == "data_offsets" && entry_->hasOffsets);
    if (isSecond) refuse("has its " + name + " twice");
    field_ = name;
  }
  [[noreturn]] void refuse(const std::string& reason) const {
    const std::string tensor = name_.empty() ? "the file" : "tensor " + quotedName(name_);
    throw Error(ErrorCode::kFileDamaged, fileName_ + ": " + tensor + " " + reason + ".",
                "Download the file again.");
  }

  std::string fileName_;
  std::map<std::string, HeaderEntry, std::less<>> entries_;
  Place place_ = Place::kStart;
  HeaderEntry* entry_ = nullptr;  // of the tensor being read; nullptr in __metadata__
  std::string name_;              // of that tensor
  std::string field_;
  bool hasMetadata_ = false;
};

/// Bytes of a shape; nothing when the product does not fit 63 bits.
std::optional<std::uint64_t> bytesOfShape(const HeaderEntry& entry) {
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t product = entryOf(*entry.type).bytes;
  // An extent of 0 makes the tensor empty, however large the others are.
  if (std::find(entry.shape->begin(), entry.shape->end(), 0) != entry.shape->end()) return 0;
  for (const std::int64_t extent : *entry.shape) {
    const auto value = static_cast<std::uint64_t>(extent);
    if (value > kLargest / product) return std::nullopt;
    product *= value;
  }
  return product;
}

/// The data must be used up by the tensors' ranges, without overlap and without a gap, as the
/// reference implementation demands: so that nothing can hide in a file or be read twice.
void checkCoverage(const std::map<std::string, HeaderEntry, std::less<>>& entries,
                   std::uint64_t dataBytes, const std::string& fileName) {
  std::vector<std::pair<const std::string*, const HeaderEntry*>> order;
  order.reserve(entries.size());
  for (const auto& [name, entry] : entries) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second->offsets < b.second->offsets; });
  std::uint64_t expected = 0;
  for (const auto& [name, entry] : order) {
    if (entry->offsets[0] != expected) {
      const bool overlaps = entry->offsets[0] < expected;
      throw Error(ErrorCode::kFileDamaged,
                  fileName + ": tensor " + quotedName(*name) + " begins at byte " +
                      std::to_string(entry->offsets[0]) + " of the data, but the one before it " +
                      "ends at " + std::to_string(expected) +
                      (overlaps ? ": they overlap." : ": bytes between them belong to no tensor."),
                  "Download the file again.");
    }
    expected = entry->offsets[1];
  }
  if (expected != dataBytes) {
    throw Error(ErrorCode::kFileDamaged,
                fileName + ": the file has " + std::to_string(dataBytes - expected) +
                    " bytes behind the last tensor.",
                "Download the file again.");
  }
}

/// The JSON text of the header. Checks the two lengths.
std::span<const std::byte> headerOf(std::span<const std::byte> file, const std::string& fileName) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(ErrorCode::kFileDamaged, fileName + ": the file " + reason + ".",
                "Download the file again.");
  };
  if (file.size() < kLengthBytes) {
    refuse("has only " + std::to_string(file.size()) + " bytes and no header");
  }
  std::uint64_t headerBytes = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    headerBytes |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  }
  if (headerBytes > kSafetensorsHeaderLimitBytes) {
    refuse("announces a header of " + std::to_string(headerBytes) +
           " bytes, more than the format allows");
  }
  if (headerBytes > file.size() - kLengthBytes) {
    refuse("ends inside its header: " + std::to_string(file.size() - kLengthBytes) + " of " +
           std::to_string(headerBytes) + " bytes are there");
  }
  const auto header = file.subspan(kLengthBytes, static_cast<std::size_t>(headerBytes));
  if (header.empty() || header[0] != std::byte{'{'}) {
    refuse("has a header that is not a JSON object");
  }
  // The JSON library takes a NUL for the end of the text; what stands behind it would go unseen.
  if (std::find(header.begin(), header.end(), std::byte{0}) != header.end()) {
    refuse("has a NUL byte in its header");
  }
  return header;
}

}  // namespace

const char* tensorTypeName(TensorType type) { return entryOf(type).name; }
std::size_t tensorTypeBytes(TensorType type) { return entryOf(type).bytes; }

FileTensors parseSafetensors(std::span<const std::byte> file, const std::string& fileName) {
  const std::span<const std::byte> header = headerOf(file, fileName);
  const std::span<const std::byte> data = file.subspan(kLengthBytes + header.size());
  HeaderReader reader(fileName);
  const auto* text = reinterpret_cast<const char*>(header.data());
  nlohmann::json::sax_parse(text, text + header.size(), &reader);

  auto entries = reader.takeEntries();
  FileTensors tensors;
  for (auto& [name, entry] : entries) {
    const auto refuse = [&, &tensor = name](const std::string& reason) {
      throw Error(ErrorCode::kFileDamaged,
                  fileName + ": tensor " + quotedName(tensor) + " " + reason,
                  "Download the file again.");
    };
    const std::uint64_t begin = entry.offsets[0];
    const std::uint64_t end = entry.offsets[1];
    if (begin > end) refuse("ends before it begins.");
    if (end > data.size()) {
      refuse("needs the data up to byte " + std::to_string(end) + ", but the file ends at " +
             std::to_string(data.size()) + ".");
    }
    const std::optional<std::uint64_t> bytes = bytesOfShape(entry);
    if (!bytes) refuse("has the shape " + shapeText(*entry.shape) + ", which is too large.");
    if (*bytes != end - begin) {
      refuse("of type " + std::string(tensorTypeName(*entry.type)) + " and shape " +
             shapeText(*entry.shape) + " has " + std::to_string(end - begin) +
             " bytes instead of " + std::to_string(*bytes) + ".");
    }
    const auto range =
        data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    tensors.emplace(name, FileTensor{*entry.type, *entry.shape, range});
  }
  checkCoverage(entries, data.size(), fileName);
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path),
      fileName_(path.filename().string()),
      tensors_(parseSafetensors(file_.bytes(), fileName_)) {}

const FileTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace longhand::engine
