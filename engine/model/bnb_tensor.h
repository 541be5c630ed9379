#pragma once
// Weights that bitsandbytes quantized to 4 bits: a packed tensor P, its block scales and tables in
// tensors beside it (P.absmax, P.quant_map, P.nested_absmax, P.nested_quant_map), and a small JSON
// with the logical shape (P.quant_state.bitsandbytes__nf4).

#include <functional>
#include <string>

#include "engine/model/model_reader.h"
#include "engine/model/safetensors_file.h"

namespace longhand::engine {

/// The tensor with this suffix behind the weight's name, or nullptr.
using FindCompanion = std::function<const FileTensor*(const char* suffix)>;

/// True when companions of bitsandbytes are there, of whatever kind.
bool isBnbTensor(const FindCompanion& find);

/// View of an NF4 weight; the file's own tables are used, since implementations differ in their
/// last bits. Throws Error that starts with `where`: fp4 or 8 bits, other block sizes than 64 and
/// 256, a shape other than the spec's, sizes that contradict it.
SourceTensor readBnbTensor(const FileTensor& packed, const FindCompanion& find,
                           const WeightSpec& spec, const std::string& where);

}  // namespace longhand::engine
