#!/bin/sh
# Prints every include that goes up the layers kernels <- engine <- app <- ui, or up the rooms of
# engine; exits 1 when there is one. Usage: layer_check.sh SOURCE_DIR
cd "$1" || exit 2
bad=0
deny() {
  if grep -rnE "$2" "$1" --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh'; then
    bad=1
  fi
}
deny kernels '#include ("(engine|app|ui)/|<Q|<nlohmann|<sentencepiece)'
deny engine '#include ("(app|ui)/|<Q|<cuda|<sqlite)'
deny app '#include ("(ui|kernels)/|<Q(Widget|Application|MainWindow|Dialog|Qml|Quick))'
deny ui '#include ("kernels/|<QSql|<sqlite)'

# engine: base < gguf, jinja < text, model, cache < graph < session < the files beside the folders < cli.
top='[a-z0-9_]+\.h"'
deny engine/base "#include \"engine/((gguf|jinja|text|model|cache|graph|session|cli)/|$top)"
deny engine/gguf "#include \"engine/((jinja|text|model|cache|graph|session|cli)/|$top)"
deny engine/jinja "#include \"engine/((gguf|text|model|cache|graph|session|cli)/|$top)"
deny engine/text "#include \"engine/((graph|session|cli)/|$top)"
deny engine/model "#include \"engine/((graph|session|cli)/|$top)"
deny engine/cache "#include \"engine/((graph|session|cli)/|$top)"
deny engine/graph "#include \"engine/((session|cli)/|$top)"
deny engine/session "#include \"engine/(cli/|$top)"
if grep -nE '#include "engine/cli/' engine/*.h engine/*.cpp; then
  bad=1
fi
exit $bad
