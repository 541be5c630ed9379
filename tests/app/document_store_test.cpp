#include "app/document_store.h"

#include <QTemporaryDir>
#include <QtTest>

#include "app/conversation_store.h"
#include "app/database.h"
#include "app/document_reader.h"

namespace longhand::app {

namespace {

DocumentContent content(const QString& name, const QString& text) {
  DocumentContent result;
  result.fileName = name;
  result.path = QStringLiteral("/somewhere/") + name;
  result.text = text;
  result.encoding = QStringLiteral("UTF-8");
  result.notes = QStringList{QStringLiteral("First note."), QStringLiteral("Second note.")};
  return result;
}

}  // namespace

class DocumentStoreTest : public QObject {
  Q_OBJECT

 private slots:
  void oneDocumentServesSeveralChatsAndIsKeptOnce() {
    QTemporaryDir folder;
    Database database(folder.filePath(QStringLiteral("longhand.sqlite")));
    ConversationStore conversations(database);
    DocumentStore documents(database);
    const std::int64_t first = conversations.createConversation(QStringLiteral("quality"));
    const std::int64_t second = conversations.createConversation(QStringLiteral("quality"));

    const std::int64_t house =
        documents.add(content(QStringLiteral("house.txt"), QStringLiteral("A house.")), 5, 99);
    QCOMPARE(documents.add(content(QStringLiteral("house.txt"), QStringLiteral("A house.")), 6, 99),
             house);
    const std::int64_t changed =
        documents.add(content(QStringLiteral("house.txt"), QStringLiteral("A new house.")), 7, 99);
    QVERIFY(changed != house);
    documents.attach(first, changed);
    documents.attach(first, house);
    documents.attach(first, changed);  // once more is once
    documents.attach(second, house);

    const std::vector<Document> of = documents.documentsOf(first);
    QCOMPARE(of.size(), std::size_t{2});
    QCOMPARE(of[0].id, changed);
    QCOMPARE(of[1].text, QStringLiteral("A house."));
    QCOMPARE(of[1].tokenCount, std::int64_t{6});
    QCOMPARE(of[1].encoding, QStringLiteral("UTF-8"));
    QCOMPARE(of[1].notes.size(), 2);
    QCOMPARE(of[1].sha256.size(), 32);
    QVERIFY(documents.documents().front().text.isEmpty());

    documents.detach(first, house);
    QCOMPARE(documents.documentsOf(first).size(), std::size_t{1});
    QCOMPARE(documents.documentsOf(second).size(), std::size_t{1});
    QCOMPARE(documents.purgeUnused(), 0);
    // A deleted chat can come back, so its documents stay until it is purged.
    conversations.deleteConversation(second);
    QCOMPARE(documents.purgeUnused(), 0);
    conversations.purgeDeleted(QDateTime::currentDateTime().addSecs(1));
    QCOMPARE(documents.purgeUnused(), 1);
    QCOMPARE(documents.documents().size(), std::size_t{1});
  }

  void aChatWithoutATitleGoesByItsFirstDocument() {
    QTemporaryDir folder;
    Database database(folder.filePath(QStringLiteral("longhand.sqlite")));
    ConversationStore conversations(database);
    DocumentStore documents(database);
    const std::int64_t chat = conversations.createConversation(QStringLiteral("quality"));
    QCOMPARE(conversations.conversation(chat).documentName, QString());
    const std::int64_t first =
        documents.add(content(QStringLiteral("Übersicht.txt"), QStringLiteral("A house.")), 5, 99);
    documents.attach(chat, first);
    documents.attach(chat, documents.add(content(QStringLiteral("b.txt"), {}), 5, 99));
    QCOMPARE(conversations.conversation(chat).documentName, QStringLiteral("Übersicht.txt"));
    QCOMPARE(conversations.conversations().front().documentName, QStringLiteral("Übersicht.txt"));
    const std::vector<SearchHit> hits = conversations.search(QStringLiteral("übersicht"));
    QCOMPARE(hits.size(), std::size_t{1});
    QCOMPARE(hits[0].conversationId, chat);
    QCOMPARE(hits[0].title, QStringLiteral("Übersicht.txt"));

    conversations.setTitle(chat, QStringLiteral("Houses"));
    QVERIFY(conversations.search(QStringLiteral("übersicht")).empty());
    documents.detach(chat, first);
    QCOMPARE(conversations.conversation(chat).documentName, QStringLiteral("b.txt"));
  }
};

}  // namespace longhand::app

QTEST_GUILESS_MAIN(longhand::app::DocumentStoreTest)
#include "document_store_test.moc"
