#include "app/chat_prompt.h"

#include <QtTest>

namespace longhand::app {

namespace {

constexpr std::uint64_t kTokenizer = 77;

Message userMessage(const QString& text) {
  Message message;
  message.text = text;
  return message;
}

Message answerMessage(const QString& text, std::vector<std::int32_t> tokens) {
  Message message;
  message.role = MessageRole::kAssistant;
  message.text = text;
  message.tokens = std::move(tokens);
  message.tokenizerFingerprint = kTokenizer;
  return message;
}

Document document(const QString& name, const QString& text) {
  Document result;
  result.fileName = name;
  result.text = text;
  return result;
}

}  // namespace

class ChatPromptTest : public QObject {
  Q_OBJECT

 private slots:
  void documentsStandInFrontOfTheFirstQuestionOnly() {
    const std::vector<Document> documents = {
        document(QStringLiteral("a.txt"), QStringLiteral("A")),
        document(QStringLiteral("b.txt"), QStringLiteral("B"))};
    const ChatPrompt prompt = buildPrompt(
        documents, {userMessage(QStringLiteral("one")), answerMessage(QStringLiteral("1"), {4})},
        QStringLiteral("two"), kTokenizer);
    QCOMPARE(prompt.turns.size(), std::size_t{2});
    QCOMPARE(prompt.turns[0].user,
             std::string("Document \"a.txt\":\nA\n\nDocument \"b.txt\":\nB\n\none"));
    QCOMPARE(*prompt.turns[0].answer, std::string("1"));
    QCOMPARE(prompt.turns[1].user, std::string("two"));
    QVERIFY(!prompt.turns[1].answer.has_value());
  }

  void storedIdsAreUsedOnlyWithTheirOwnTokenizer() {
    const std::vector<Message> branch = {userMessage(QStringLiteral("q")),
                                         answerMessage(QStringLiteral("a"), {4, 5})};
    QCOMPARE(buildPrompt({}, branch, {}, kTokenizer).turns[0].answerTokens.size(), std::size_t{2});
    QVERIFY(buildPrompt({}, branch, {}, kTokenizer + 1).turns[0].answerTokens.empty());
  }

  void aQuestionWithoutAnAnswerStaysInTheChat() {
    const ChatPrompt prompt =
        buildPrompt({}, {userMessage(QStringLiteral("lost"))}, QStringLiteral("next"), kTokenizer);
    QCOMPARE(prompt.turns.size(), std::size_t{2});
    QCOMPARE(*prompt.turns[0].answer, std::string());
    QVERIFY(!prompt.turns[1].answer.has_value());
  }

  void documentsAloneAreAPrefixOfEveryQuestionAboutThem() {
    const std::vector<Document> documents = {
        document(QStringLiteral("a.txt"), QStringLiteral("A"))};
    const std::string alone = buildPrompt(documents, {}, {}, kTokenizer).turns.front().user;
    const std::string asked =
        buildPrompt(documents, {}, QStringLiteral("Why?"), kTokenizer).turns.front().user;
    QVERIFY(asked.starts_with(alone));
  }

  void titlesAreTheFirstLineCutBetweenWords() {
    QCOMPARE(titleFromQuestion(QStringLiteral("  Why  is it?\nMore")),
             QStringLiteral("Why is it?"));
    const QString title = titleFromQuestion(QStringLiteral("word ").repeated(40));
    QVERIFY(title.size() <= 61);
    QVERIFY(title.endsWith(QStringLiteral("word…")));
    QCOMPARE(titleFromQuestion(QStringLiteral("字").repeated(100)).size(), 60);
    // Never half a character.
    const QString emoji =
        titleFromQuestion(QStringLiteral("x") + QStringLiteral("🙂").repeated(60));
    QVERIFY(!emoji.chopped(1).back().isHighSurrogate());
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::ChatPromptTest)
#include "chat_prompt_test.moc"
