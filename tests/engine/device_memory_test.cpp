// Memory of the CUDA backend, on the emulated device: what is taken, when, and that all of it goes
// back.

#include <memory>

#include <QtTest>

#include "engine/engine.h"
#include "engine/presets.h"
#include "tests/cuda_on_cpu/emulated_plugin.h"
#include "tests/engine/engine_harness.h"
#include "tests/support/paths.h"

using namespace longhand;
using namespace longhand::engine;

class DeviceMemoryTest : public QObject {
  Q_OBJECT
 private slots:
  void aModelThatIsUnloadedGivesAllItsMemoryBack();
};

void DeviceMemoryTest::aModelThatIsUnloadedGivesAllItsMemoryBack() {
  const cuda_on_cpu::EmulatedPlugin plugin(LONGHAND_EMULATED_PLUGIN);
  EngineOptions options;
  options.backend = "cuda";
  options.cudaPlugin = plugin.file();
  auto engine =
      tests::loadEngine(tests::resourcePath("longhand-demo"), presetById("quality").cache, options);
  const auto prompt = engine->tokenizer().encode("The old mill was built in 1712.");
  QCOMPARE(tests::greedyTokens(*engine, prompt, 4).size(), std::size_t{4});
  QVERIFY(plugin.counters().deviceBytes > 0);

  engine.reset();
  QCOMPARE(plugin.counters().deviceBytes.load(), std::size_t{0});
}

QTEST_GUILESS_MAIN(DeviceMemoryTest)
#include "device_memory_test.moc"
