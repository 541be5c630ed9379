#include "tests/support/model_folder.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>

namespace longhand::tests {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct RawTensor {
  std::string type;
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
};

std::vector<std::uint8_t> readFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  std::vector<std::uint8_t> bytes(fs::file_size(path));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

void writeFile(const fs::path& path, const std::vector<std::uint8_t>& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

std::size_t headerBytesOf(const std::vector<std::uint8_t>& file) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, file.data(), sizeof bytes);
  return static_cast<std::size_t>(bytes);
}

void writeSafetensors(const fs::path& path, const std::string& header,
                      const std::vector<std::uint8_t>& data) {
  std::vector<std::uint8_t> file(8);
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, sizeof length);
  file.insert(file.end(), header.begin(), header.end());
  file.insert(file.end(), data.begin(), data.end());
  writeFile(path, file);
}

std::map<std::string, RawTensor> readTensors(const fs::path& path) {
  const std::vector<std::uint8_t> file = readFile(path);
  const auto body = file.begin() + 8 + static_cast<std::ptrdiff_t>(headerBytesOf(file));
  const Json header = Json::parse(file.begin() + 8, body);
  std::map<std::string, RawTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto offsets = entry.at("data_offsets").get<std::vector<std::ptrdiff_t>>();
    tensors[name] = {entry.at("dtype").get<std::string>(),
                     entry.at("shape").get<std::vector<std::int64_t>>(),
                     {body + offsets.at(0), body + offsets.at(1)}};
  }
  return tensors;
}

void writeTensors(const fs::path& path, const std::map<std::string, RawTensor>& tensors) {
  Json header;
  std::vector<std::uint8_t> data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    data.insert(data.end(), tensor.bytes.begin(), tensor.bytes.end());
    header[name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // as writers do, so that data are aligned
  writeSafetensors(path, text, data);
}

}  // namespace

ModelFolder::ModelFolder(const fs::path& original) {
  for (const fs::directory_entry& entry : fs::directory_iterator(original)) {
    if (!entry.is_regular_file()) continue;
    const fs::path copy = path() / entry.path().filename();
    fs::copy_file(entry.path(), copy);
    fs::permissions(copy, fs::perms::owner_read | fs::perms::owner_write);
  }
}

fs::path ModelFolder::path() const { return folder_.path().toStdString(); }

void ModelFolder::changeConfig(const std::function<void(Json&)>& change) const {
  const std::vector<std::uint8_t> text = readFile(path() / "config.json");
  Json json = Json::parse(text.begin(), text.end());
  change(json);
  std::ofstream(path() / "config.json") << json.dump(2);
}

void ModelFolder::changeHeader(const std::function<void(Json&)>& change,
                               const std::string& file) const {
  const std::vector<std::uint8_t> bytes = readFile(path() / file);
  const auto body = bytes.begin() + 8 + static_cast<std::ptrdiff_t>(headerBytesOf(bytes));
  Json header = Json::parse(bytes.begin() + 8, body);
  change(header);
  writeSafetensors(path() / file, header.dump(), {body, bytes.end()});
}

void ModelFolder::setTensor(const std::string& name, const std::string& type,
                            const std::vector<std::int64_t>& shape,
                            const std::vector<std::uint8_t>& bytes, const std::string& file) const {
  auto tensors = readTensors(path() / file);
  tensors[name] = {type, shape, bytes};
  writeTensors(path() / file, tensors);
}

void ModelFolder::removeTensor(const std::string& name, const std::string& file) const {
  auto tensors = readTensors(path() / file);
  if (tensors.erase(name) != 1) throw std::out_of_range("no tensor " + name);
  writeTensors(path() / file, tensors);
}

std::vector<std::uint8_t> ModelFolder::tensorBytes(const std::string& name,
                                                   const std::string& file) const {
  return readTensors(path() / file).at(name).bytes;
}

void ModelFolder::shiftData(std::size_t bytes) const {
  // "!" sorts in front of every name of a model.
  setTensor("!shift", "U8", {static_cast<std::int64_t>(bytes)}, std::vector<std::uint8_t>(bytes));
}

void ModelFolder::truncate(std::size_t bytes, const std::string& file) const {
  fs::resize_file(path() / file, fs::file_size(path() / file) - bytes);
}

}  // namespace longhand::tests
