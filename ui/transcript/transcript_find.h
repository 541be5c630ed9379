#pragma once
// Search in the transcript: which message holds how many matches, and which one is current. Works
// on the texts the messages show, without building their documents.

#include <utility>
#include <vector>

#include <QString>
#include <QVector>

#include "ui/transcript/transcript_message.h"

class QTextDocument;

namespace longhand::ui {

class TranscriptFind {
 public:
  struct Place {
    int message = -1;  // index in the transcript
    int ordinal = -1;  // which match inside that message
    bool operator==(const Place&) const = default;
  };

  bool active() const { return !needle_.isEmpty(); }
  const QString& needle() const { return needle_; }

  /// Forgets the counts; they follow by countMessage() for each message, from 0.
  void start(const QString& needle);
  /// Sets how often message `index` (at most one past the known ones) holds the text.
  void countMessage(int index, const TranscriptMessage& message);
  void removeMessage(int index);

  int total() const;
  /// 0-based among all matches, -1: none.
  int current() const;
  Place currentPlace() const { return current_; }
  void setCurrent(int match);  // 0 <= match < total()
  /// The first match in message `index` or later; wraps; -1 without matches.
  int firstFrom(int index) const;

  /// The ranges of the matches in a message's document, in order.
  std::vector<std::pair<int, int>> ranges(const QTextDocument& document) const;

 private:
  QString needle_;
  std::vector<int> counts_;  // for each message
  Place current_;
};

}  // namespace longhand::ui
