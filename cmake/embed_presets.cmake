# Script (cmake -P): writes OUTPUT, a .cpp that holds the text of INPUT (presets.json).
file(READ "${INPUT}" text)
file(WRITE "${OUTPUT}" "// Made from resources/presets.json by the build. Do not edit.
#include \"engine/cache/presets_json.h\"

namespace longhand::engine {

const std::string_view kPresetsJson = R\"presets(${text})presets\";

}  // namespace longhand::engine
")
