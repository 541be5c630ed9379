// StopTextScanner: what is emitted, when it hits, and that the cutting of the input does not
// matter.

#include "engine/text/stop_text.h"

#include <random>

#include <QTest>

using longhand::engine::StopTextScanner;

namespace {

struct Outcome {
  std::string text;
  bool isHit = false;
  bool operator==(const Outcome&) const = default;
};

/// The definition, the slow way: at the first end of any stop text, what stands before the longest.
Outcome expectedOutcome(const std::string& input, const std::vector<std::string>& stopTexts) {
  for (std::size_t end = 1; end <= input.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stopTexts) {
      if (std::string_view(input).substr(0, end).ends_with(stop)) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {input.substr(0, end - longest), true};
  }
  return {input, false};
}

Outcome scan(const std::string& input, const std::vector<std::string>& stopTexts,
             std::mt19937& random) {
  StopTextScanner scanner(stopTexts);
  Outcome outcome;
  for (std::size_t at = 0; at < input.size();) {
    const std::size_t length = random() % 4;
    outcome.text += scanner.append(std::string_view(input).substr(at, length));
    at += length;
  }
  outcome.isHit = scanner.isHit();
  outcome.text += scanner.finish();
  return outcome;
}

}  // namespace

class StopTextTest : public QObject {
  Q_OBJECT

 private slots:
  void withoutStopTextsEverythingPassesAtOnce();
  void neverEmitsAnyPartOfAStopText();
  void releasesTextThatDidNotBecomeAStopText();
  void theStopTextThatIsCompleteFirstWins();
  void handlesStopTextsThatOverlapThemselves();
  void emitsNothingAfterAHitUntilItIsFinished();
  void keepsCharactersWhole();
  void anyCuttingOfTheInputGivesTheSameText();
};

void StopTextTest::withoutStopTextsEverythingPassesAtOnce() {
  StopTextScanner scanner({""});
  QCOMPARE(scanner.append("Hello"), std::string("Hello"));
  QCOMPARE(scanner.append(""), std::string());
  QVERIFY(!scanner.isHit());
  QCOMPARE(scanner.finish(), std::string());
}

void StopTextTest::neverEmitsAnyPartOfAStopText() {
  StopTextScanner scanner({"User:"});
  QCOMPARE(scanner.append("Hi. U"), std::string("Hi. "));
  QCOMPARE(scanner.append("ser"), std::string());
  QVERIFY(!scanner.isHit());
  QCOMPARE(scanner.append(": and more"), std::string());
  QVERIFY(scanner.isHit());
}

void StopTextTest::releasesTextThatDidNotBecomeAStopText() {
  StopTextScanner scanner({"User:"});
  QCOMPARE(scanner.append("Us"), std::string());
  QCOMPARE(scanner.append("age"), std::string("Usage"));
  QCOMPARE(scanner.append("User"), std::string());
  QVERIFY(!scanner.isHit());
  QCOMPARE(scanner.finish(), std::string("User"));
}

void StopTextTest::theStopTextThatIsCompleteFirstWins() {
  StopTextScanner inner({"abcd", "bc"});
  QCOMPARE(inner.append("xabcd"), std::string("xa"));
  QVERIFY(inner.isHit());
  StopTextScanner sameEnd({"bc", "abc"});
  QCOMPARE(sameEnd.append("xabc"), std::string("x"));
  QVERIFY(sameEnd.isHit());
}

void StopTextTest::handlesStopTextsThatOverlapThemselves() {
  StopTextScanner scanner({"\n\n#"});
  QCOMPARE(scanner.append("a\n\n"), std::string("a"));
  QCOMPARE(scanner.append("\n"), std::string("\n"));
  QCOMPARE(scanner.append("#"), std::string());
  QVERIFY(scanner.isHit());
}

void StopTextTest::emitsNothingAfterAHitUntilItIsFinished() {
  StopTextScanner scanner({"stop"});
  QCOMPARE(scanner.append("go stop go"), std::string("go "));
  QVERIFY(scanner.isHit());
  QCOMPARE(scanner.append("go"), std::string());
  QCOMPARE(scanner.finish(), std::string());
  QVERIFY(!scanner.isHit());
  QCOMPARE(scanner.append("go st"), std::string("go "));
}

void StopTextTest::keepsCharactersWhole() {
  // Both begin with the byte C3.
  StopTextScanner scanner({"é"});
  QCOMPARE(scanner.append("è"), std::string("è"));
  QCOMPARE(scanner.append("cafè é"), std::string("cafè "));
  QVERIFY(scanner.isHit());
}

void StopTextTest::anyCuttingOfTheInputGivesTheSameText() {
  std::mt19937 random(7);
  const auto randomText = [&random](std::size_t maxSize) {
    std::string text(random() % (maxSize + 1), 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  int nHits = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stopTexts(random() % 4);
    for (std::string& stop : stopTexts) stop = randomText(6);
    const std::string input = randomText(30);
    const Outcome expected = expectedOutcome(input, stopTexts);
    nHits += expected.isHit ? 1 : 0;
    QVERIFY(scan(input, stopTexts, random) == expected);
  }
  QVERIFY(nHits > 5000);
}

QTEST_GUILESS_MAIN(StopTextTest)
#include "stop_text_test.moc"
