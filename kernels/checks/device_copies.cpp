#include "kernels/checks/device_copies.h"

#include <cassert>
#include <new>

#include "kernels/page_layout.h"

namespace longhand::kernels::checks {
namespace {

constexpr std::size_t kLineBytes = 64;

std::byte* bytesAt(void* address) { return static_cast<std::byte*>(address); }

std::size_t spanBytes(const AttentionShape& shape, const ExactSpan& span) {
  return bytesOf(span.type, shape.nKvHeads * span.tokenCapacity * shape.headDim);
}

}  // namespace

DeviceCopies::~DeviceCopies() {
  for (const Copy& copy : copies_) backend_.release(copy.memory, copy.offset + copy.bytes);
}

std::byte* DeviceCopies::copy(std::byte* host, std::size_t bytes) {
  if (backend_.usesHostMemory() || host == nullptr) return host;
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(host) % kLineBytes;
  std::byte* const memory = backend_.allocate(offset + bytes);
  if (memory == nullptr) throw std::bad_alloc();
  copies_.push_back({host, memory, offset, bytes});
  backend_.upload(memory + offset, host, bytes);
  return memory + offset;
}

const float* DeviceCopies::copy(const float* host, std::size_t count) {
  const auto* bytes = static_cast<const std::byte*>(static_cast<const void*>(host));
  return static_cast<const float*>(static_cast<const void*>(copy(bytes, count * sizeof(float))));
}

void DeviceCopies::fetch(std::byte* host) {
  for (const Copy& copy : copies_) {
    if (copy.host == host) backend_.download(host, copy.memory + copy.offset, copy.bytes);
  }
}

MatrixView DeviceCopies::copy(TestMatrix& matrix) {
  MatrixView view = matrix.view();
  const std::span<float> buffer = matrix.buffer();
  if (buffer.empty()) return view;
  std::byte* const memory = copy(bytesAt(buffer.data()), buffer.size_bytes());
  view.data = static_cast<float*>(static_cast<void*>(memory)) + (view.data - buffer.data());
  return view;
}

void DeviceCopies::fetch(TestMatrix& matrix) { fetch(bytesAt(matrix.buffer().data())); }

WeightView DeviceCopies::copy(const WeightView& weight) {
  const std::int64_t count = weight.rows * weight.cols;
  const auto nBlocks = static_cast<std::size_t>((count + kNf4BlockSize - 1) / kNf4BlockSize);
  const std::size_t nNested = (nBlocks + kNf4NestedBlockSize - 1) / kNf4NestedBlockSize;
  constexpr std::size_t kNestedCodebookSize = 256;
  WeightView view = weight;
  view.data = copy(weight.data, bytesOf(weight.type, count));
  view.scales = copy(weight.scales, nBlocks);
  view.codebook = copy(weight.codebook, std::size_t{16});
  view.absmax = copy(weight.absmax, nBlocks);
  const void* codes = weight.absmaxCodes;
  codes = copy(static_cast<const std::byte*>(codes), nBlocks);
  view.absmaxCodes = static_cast<const std::uint8_t*>(codes);
  view.nestedAbsmax = copy(weight.nestedAbsmax, nNested);
  view.nestedCodebook = copy(weight.nestedCodebook, kNestedCodebookSize);
  return view;
}

ExactSpan DeviceCopies::copy(const AttentionShape& shape, const ExactSpan& span) {
  ExactSpan view = span;
  const std::size_t bytes = spanBytes(shape, span);
  if (bytes == 0) return view;
  view.keys = copy(span.keys, bytes);
  view.values = copy(span.values, bytes);
  return view;
}

void DeviceCopies::fetch(const ExactSpan& span) {
  fetch(span.keys);
  fetch(span.values);
}

PageRef DeviceCopies::copy(const AttentionShape& shape, const PageRef& page) {
  PageRef view = page;
  view.data = copy(page.data, pageLayout(page.format, shape.nKvHeads, shape.headDim).totalBytes);
  return view;
}

DeviceScene::DeviceScene(DeviceCopies& copies, const KvScene& scene) {
  const KvView history = scene.history();
  nPages_ = history.nPages;
  nPagedTokens_ = history.nPagedTokens;
  for (std::int64_t i = 0; i < nPages_; ++i) {
    table_.push_back(copies.copy(scene.shape(), history.pages[i]));
  }
  if (nPages_ > 0) {
    const void* table = table_.data();
    table = copies.copy(static_cast<const std::byte*>(table), table_.size() * sizeof(PageRef));
    pages_ = static_cast<const PageRef*>(table);
  }
  for (const ExactSpan& span : history.exact) spans_.push_back(copies.copy(scene.shape(), span));
  chunk_ = copies.copy(scene.shape(), scene.chunk());
}

}  // namespace longhand::kernels::checks
