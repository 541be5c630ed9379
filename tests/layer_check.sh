#!/bin/sh
# Prints every include that goes up the layers kernels <- engine <- app <- ui; exits 1 when there is
# one. Usage: layer_check.sh SOURCE_DIR
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
exit $bad
