#include "kernels/reference/reference_kv.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/half.h"
#include "kernels/page_layout.h"
#include "kernels/quantizer.h"

namespace longhand::kernels {
namespace {

constexpr float kLargestHalf = 65504.0F;

float readExact(DataType type, const std::byte* base, std::int64_t index) {
  if (type == DataType::kF32) {
    float value;
    std::memcpy(&value, base + index * 4, sizeof value);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, base + index * 2, sizeof half);
  return halfToFloat(half);
}

void writeExact(DataType type, std::byte* base, std::int64_t index, float value) {
  if (type == DataType::kF32) {
    std::memcpy(base + index * 4, &value, sizeof value);
    return;
  }
  const std::uint16_t half = floatToHalf(value);
  std::memcpy(base + index * 2, &half, sizeof half);
}

std::int64_t exactIndex(const AttentionShape& shape, const ExactSpan& span, std::int64_t kvHead,
                        std::int64_t token, std::int64_t channel) {
  return (kvHead * span.tokenCapacity + token) * shape.headDim + channel;
}

/// Where code `index` of a word stands: byte index % 4, bit (index / 4) * nbits of it.
unsigned codeShift(int nbits, std::int64_t index) {
  return static_cast<unsigned>(8 * (index % 4) + nbits * (index / 4));
}

std::uint8_t readCode(const std::byte* words, std::int64_t word, int nbits, std::int64_t index) {
  std::uint32_t bits = 0;
  for (unsigned byte = 0; byte < 4; ++byte) {
    bits |= std::to_integer<std::uint32_t>(words[word * 4 + byte]) << (8U * byte);
  }
  return static_cast<std::uint8_t>((bits >> codeShift(nbits, index)) & ((1U << nbits) - 1U));
}

/// The word's code must have been 0.
void writeCode(std::byte* words, std::int64_t word, int nbits, std::int64_t index,
               std::uint8_t code) {
  const unsigned shift = codeShift(nbits, index);
  words[word * 4 + shift / 8] |= static_cast<std::byte>(code << (shift % 8));
}

GroupParameters readParameters(const std::byte* page, std::size_t scales, std::size_t mins,
                               std::int64_t index) {
  GroupParameters group;
  group.scale = readExact(DataType::kF16, page + scales, index);
  if (mins != kNoPart) group.min = readExact(DataType::kF16, page + mins, index);
  return group;
}

void writeParameters(std::byte* page, std::size_t scales, std::size_t mins, std::int64_t index,
                     const GroupParameters& group) {
  writeExact(DataType::kF16, page + scales, index, group.scale);
  if (mins != kNoPart) writeExact(DataType::kF16, page + mins, index, group.min);
}

/// The exact tokens of a page's sources, whichever span each stands in.
class PageSource {
 public:
  PageSource(const AttentionShape& shape, std::span<const ExactSpan> spans)
      : shape_(shape), spans_(spans) {}

  float key(std::int64_t kvHead, std::int64_t token, std::int64_t channel) const {
    return at(kvHead, token, channel, true);
  }
  float value(std::int64_t kvHead, std::int64_t token, std::int64_t channel) const {
    return at(kvHead, token, channel, false);
  }

 private:
  float at(std::int64_t kvHead, std::int64_t token, std::int64_t channel, bool isKey) const {
    for (const ExactSpan& span : spans_) {
      if (token < span.nTokens) {
        return readExact(span.type, isKey ? span.keys : span.values,
                         exactIndex(shape_, span, kvHead, token, channel));
      }
      token -= span.nTokens;
    }
    assert(false && "the sources hold fewer tokens than the page");
    return 0.0F;
  }

  const AttentionShape& shape_;
  std::span<const ExactSpan> spans_;
};

float roundForPacking(float value) {
  return std::clamp(halfToFloat(floatToHalf(value)), -kLargestHalf, kLargestHalf);
}

void packKeys(const AttentionShape& shape, const PageSource& source, const PageFormat& format,
              QuantSolver solver, const PageLayout& layout, std::byte* page) {
  const std::int64_t group = format.groupSize;
  const std::int64_t codesPerWord = 32 / format.keyNbits;
  std::vector<float> values(static_cast<std::size_t>(group));
  std::vector<std::uint8_t> codes(values.size());
  for (std::int64_t kvHead = 0; kvHead < shape.nKvHeads; ++kvHead) {
    for (std::int64_t channel = 0; channel < shape.headDim; ++channel) {
      for (std::int64_t token = 0; token < group; ++token) {
        values[static_cast<std::size_t>(token)] =
            roundForPacking(source.key(kvHead, token, channel));
      }
      const GroupParameters parameters =
          quantizeGroup(values, format.keyNbits, format.scheme, solver, codes);
      writeParameters(page, layout.keyScales, layout.keyMins, kvHead * shape.headDim + channel,
                      parameters);
      for (std::int64_t token = 0; token < group; ++token) {
        const std::int64_t word =
            (kvHead * layout.keyWords + channel / codesPerWord) * group + token;
        writeCode(page + layout.keyCodes, word, format.keyNbits, channel % codesPerWord,
                  codes[static_cast<std::size_t>(token)]);
      }
    }
  }
}

void packValues(const AttentionShape& shape, const PageSource& source, const PageFormat& format,
                QuantSolver solver, const PageLayout& layout, std::byte* page) {
  const std::int64_t group = format.groupSize;
  const std::int64_t codesPerWord = 32 / format.valueNbits;
  std::vector<float> values;
  std::vector<std::uint8_t> codes;
  for (std::int64_t kvHead = 0; kvHead < shape.nKvHeads; ++kvHead) {
    for (std::int64_t token = 0; token < group; ++token) {
      for (std::int64_t valueGroup = 0; valueGroup < layout.nValueGroups; ++valueGroup) {
        const std::int64_t first = valueGroup * layout.valueGroupSize;
        const std::int64_t end = std::min(first + layout.valueGroupSize, shape.headDim);
        values.clear();
        for (std::int64_t channel = first; channel < end; ++channel) {
          values.push_back(roundForPacking(source.value(kvHead, token, channel)));
        }
        codes.resize(values.size());
        const GroupParameters parameters =
            quantizeGroup(values, format.valueNbits, format.scheme, solver, codes);
        writeParameters(page, layout.valueScales, layout.valueMins,
                        (kvHead * layout.nValueGroups + valueGroup) * group + token, parameters);
        for (std::int64_t channel = first; channel < end; ++channel) {
          const std::int64_t word =
              (kvHead * layout.valueWords + token / codesPerWord) * shape.headDim + channel;
          writeCode(page + layout.valueCodes, word, format.valueNbits, token % codesPerWord,
                    codes[static_cast<std::size_t>(channel - first)]);
        }
      }
    }
  }
}

/// Reads single numbers of a page.
class PageReader {
 public:
  PageReader(const AttentionShape& shape, const PageRef& page)
      : shape_(shape),
        page_(page),
        format_(page.format),
        layout_(pageLayout(format_, shape.nKvHeads, shape.headDim)) {}

  float key(std::int64_t kvHead, std::int64_t token, std::int64_t channel) const {
    const std::int64_t group = format_.groupSize;
    const std::byte* codes = page_.data + layout_.keyCodes;
    if (format_.keyNbits == 16) {
      return readExact(format_.exactType, codes,
                       (kvHead * group + token) * shape_.headDim + channel);
    }
    const std::int64_t perWord = 32 / format_.keyNbits;
    const std::int64_t word = (kvHead * layout_.keyWords + channel / perWord) * group + token;
    return dequantize(readCode(codes, word, format_.keyNbits, channel % perWord), format_.keyNbits,
                      format_.scheme,
                      readParameters(page_.data, layout_.keyScales, layout_.keyMins,
                                     kvHead * shape_.headDim + channel));
  }

  float value(std::int64_t kvHead, std::int64_t token, std::int64_t channel) const {
    const std::int64_t group = format_.groupSize;
    const std::byte* codes = page_.data + layout_.valueCodes;
    if (format_.valueNbits == 16) {
      return readExact(format_.exactType, codes,
                       (kvHead * group + token) * shape_.headDim + channel);
    }
    const std::int64_t perWord = 32 / format_.valueNbits;
    const std::int64_t word =
        (kvHead * layout_.valueWords + token / perWord) * shape_.headDim + channel;
    const std::int64_t valueGroup = channel / layout_.valueGroupSize;
    return dequantize(readCode(codes, word, format_.valueNbits, token % perWord),
                      format_.valueNbits, format_.scheme,
                      readParameters(page_.data, layout_.valueScales, layout_.valueMins,
                                     (kvHead * layout_.nValueGroups + valueGroup) * group + token));
  }

 private:
  const AttentionShape& shape_;
  const PageRef& page_;
  const PageFormat& format_;
  const PageLayout layout_;
};

/// One kv head's keys and values of everything a query may see, as [nTokens, headDim].
struct Gathered {
  std::vector<float> keys;
  std::vector<float> values;
};

Gathered gather(const AttentionShape& shape, const KvView& history, const ExactSpan& chunk,
                std::int64_t kvHead) {
  Gathered result;
  const auto addExact = [&](const ExactSpan& span) {
    for (std::int64_t token = 0; token < span.nTokens; ++token) {
      for (std::int64_t channel = 0; channel < shape.headDim; ++channel) {
        const std::int64_t index = exactIndex(shape, span, kvHead, token, channel);
        result.keys.push_back(readExact(span.type, span.keys, index));
        result.values.push_back(readExact(span.type, span.values, index));
      }
    }
  };
  for (std::int64_t i = 0; i < history.nPages; ++i) {
    const PageRef& page = history.pages[i];
    const PageReader reader(shape, page);
    for (std::int64_t token = 0; token < page.nTokens; ++token) {
      for (std::int64_t channel = 0; channel < shape.headDim; ++channel) {
        result.keys.push_back(reader.key(kvHead, token, channel));
        result.values.push_back(reader.value(kvHead, token, channel));
      }
    }
  }
  for (const ExactSpan& span : history.exact) addExact(span);
  addExact(chunk);
  return result;
}

/// Two-pass softmax attention of one query over the first nTokens gathered tokens.
void attendOne(const Gathered& kv, std::int64_t nTokens, std::int64_t headDim, float scoreScale,
               const float* query, float* output) {
  std::vector<double> weights(static_cast<std::size_t>(nTokens));
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t token = 0; token < nTokens; ++token) {
    const float* key = kv.keys.data() + token * headDim;
    double score = 0.0;
    for (std::int64_t channel = 0; channel < headDim; ++channel) {
      score += static_cast<double>(query[channel]) * static_cast<double>(key[channel]);
    }
    score *= static_cast<double>(scoreScale);
    weights[static_cast<std::size_t>(token)] = score;
    largest = std::max(largest, score);
  }
  double sum = 0.0;
  for (double& weight : weights) {
    weight = std::exp(weight - largest);
    sum += weight;
  }
  for (std::int64_t channel = 0; channel < headDim; ++channel) {
    double total = 0.0;
    for (std::int64_t token = 0; token < nTokens; ++token) {
      total += weights[static_cast<std::size_t>(token)] *
               static_cast<double>(kv.values[static_cast<std::size_t>(token * headDim + channel)]);
    }
    output[channel] = static_cast<float>(total / sum);
  }
}

}  // namespace

void storeExactReference(const AttentionShape& shape, const MatrixView& keys,
                         const MatrixView& values, const ExactSpan& span, std::int64_t firstToken) {
  assert(keys.rows == values.rows && firstToken + keys.rows <= span.tokenCapacity);
  for (std::int64_t row = 0; row < keys.rows; ++row) {
    for (std::int64_t kvHead = 0; kvHead < shape.nKvHeads; ++kvHead) {
      for (std::int64_t channel = 0; channel < shape.headDim; ++channel) {
        const std::int64_t column = kvHead * shape.headDim + channel;
        const std::int64_t index = exactIndex(shape, span, kvHead, firstToken + row, channel);
        writeExact(span.type, span.keys, index, keys.data[row * keys.stride + column]);
        writeExact(span.type, span.values, index, values.data[row * values.stride + column]);
      }
    }
  }
}

void copyExactReference(const AttentionShape& shape, const ExactSpan& source,
                        std::int64_t sourceFirst, const ExactSpan& destination,
                        std::int64_t destinationFirst, std::int64_t count) {
  assert(source.type == destination.type);
  assert(sourceFirst + count <= source.tokenCapacity);
  assert(destinationFirst + count <= destination.tokenCapacity);
  if (count == 0) return;
  const std::size_t bytes = bytesOf(source.type, count * shape.headDim);
  for (std::int64_t kvHead = 0; kvHead < shape.nKvHeads; ++kvHead) {
    const std::size_t from =
        bytesOf(source.type, exactIndex(shape, source, kvHead, sourceFirst, 0));
    const std::size_t to =
        bytesOf(source.type, exactIndex(shape, destination, kvHead, destinationFirst, 0));
    std::memcpy(destination.keys + to, source.keys + from, bytes);
    std::memcpy(destination.values + to, source.values + from, bytes);
  }
}

void packPageReference(const AttentionShape& shape, std::span<const ExactSpan> source,
                       const PageFormat& format, QuantSolver solver, std::byte* page) {
  assert(isValid(format));
  const PageLayout layout = pageLayout(format, shape.nKvHeads, shape.headDim);
  const PageSource tokens(shape, source);
  // Padding too, so that equal tokens give equal pages, byte for byte (session files, checksums).
  std::memset(page, 0, layout.totalBytes);
  const auto copyAll = [&](std::size_t part, auto read) {
    std::int64_t index = 0;
    for (std::int64_t kvHead = 0; kvHead < shape.nKvHeads; ++kvHead) {
      for (std::int64_t token = 0; token < format.groupSize; ++token) {
        for (std::int64_t channel = 0; channel < shape.headDim; ++channel) {
          writeExact(format.exactType, page + part, index++, read(kvHead, token, channel));
        }
      }
    }
  };
  if (format.keyNbits == 16) {
    copyAll(layout.keyCodes, [&](auto... at) { return tokens.key(at...); });
  } else {
    packKeys(shape, tokens, format, solver, layout, page);
  }
  if (format.valueNbits == 16) {
    copyAll(layout.valueCodes, [&](auto... at) { return tokens.value(at...); });
  } else {
    packValues(shape, tokens, format, solver, layout, page);
  }
}

void unpackPageReference(const AttentionShape& shape, const PageRef& page,
                         const ExactSpan& destination) {
  assert(page.nTokens <= destination.tokenCapacity);
  const PageReader reader(shape, page);
  const auto fit = [&](float value) {
    return destination.type == DataType::kF16 ? std::clamp(value, -kLargestHalf, kLargestHalf)
                                              : value;
  };
  for (std::int64_t kvHead = 0; kvHead < shape.nKvHeads; ++kvHead) {
    for (std::int64_t token = 0; token < page.nTokens; ++token) {
      for (std::int64_t channel = 0; channel < shape.headDim; ++channel) {
        const std::int64_t index = exactIndex(shape, destination, kvHead, token, channel);
        writeExact(destination.type, destination.keys, index,
                   fit(reader.key(kvHead, token, channel)));
        writeExact(destination.type, destination.values, index,
                   fit(reader.value(kvHead, token, channel)));
      }
    }
  }
}

void attendReference(const AttentionShape& shape, float scoreScale, const MatrixView& queries,
                     const KvView& history, const ExactSpan& chunk, std::int64_t chunkOffset,
                     const MatrixView& output) {
  assert(chunkOffset >= 0 && chunkOffset + queries.rows <= chunk.nTokens);
  const std::int64_t queriesPerKvHead = shape.nHeads / shape.nKvHeads;
  for (std::int64_t kvHead = 0; kvHead < shape.nKvHeads; ++kvHead) {
    const Gathered kv = gather(shape, history, chunk, kvHead);
    const std::int64_t nGathered = static_cast<std::int64_t>(kv.keys.size()) / shape.headDim;
    const std::int64_t nHistory = nGathered - chunk.nTokens;
    for (std::int64_t row = 0; row < queries.rows; ++row) {
      for (std::int64_t i = 0; i < queriesPerKvHead; ++i) {
        const std::int64_t column = (kvHead * queriesPerKvHead + i) * shape.headDim;
        attendOne(kv, nHistory + chunkOffset + row + 1, shape.headDim, scoreScale,
                  queries.data + row * queries.stride + column,
                  output.data + row * output.stride + column);
      }
    }
  }
}

}  // namespace longhand::kernels
