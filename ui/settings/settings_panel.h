#pragma once
// The panel where every number of the KV cache, the context and the sampling can be chosen. Only
// valid combinations can be entered: ranges are bounded, and what has no effect is greyed out.
// Nothing changes until Apply; while values are edited a forecast says what they would need.

#include <QWidget>

#include "engine/cache/kv_cache_config.h"
#include "engine/sampler.h"

class QCheckBox;
class QComboBox;
class QDoubleSpinBox;
class QLabel;
class QLineEdit;
class QPushButton;
class QScrollArea;
class QSpinBox;
class QTimer;

namespace longhand::ui {

/// What the panel edits.
struct SettingsValues {
  engine::KvCacheConfig cache;
  engine::SamplerConfig sampler;
  qint64 contextLength = 0;            // tokens; 0: the model's trained length
  qint64 maxTokens = 0;                // of one answer; 0: until the context is full
  int threads = 0;                     // 0: all cores this process may use
  bool keepsSessions = true;           // caches of long chats are kept on disk
  qint64 sessionQuotaBytes = 1 << 30;  // for all of them; shown in whole GiB

  bool operator==(const SettingsValues&) const = default;
};

/// What the loaded model and the machine allow.
struct SettingsLimits {
  qint64 trainedLength = 0;  // tokens; 0: no model is loaded
  int nLayers = 0;
  int nCores = 1;
  bool alwaysGreedy = false;  // the demonstration model: whatever is set, it decodes greedily
};

class SettingsPanel final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(SettingsPanel)

 public:
  explicit SettingsPanel(QWidget* parent);

  void setLimits(const SettingsLimits& limits);
  /// The values in use: shown, and what Reset goes back to. Emits nothing but edited().
  void setValues(const SettingsValues& values);
  /// The same, but what the user has edited and not applied yet stays: only the rest follows.
  void followValues(const SettingsValues& values);
  /// What the controls show.
  SettingsValues values() const;
  /// True while values() differs from the values in use.
  bool isEdited() const;
  /// One line, "This needs 3.2 GiB of 15.6 GiB."; `fits` false shows it as a warning and keeps
  /// Apply from being pressed.
  void setForecast(const QString& line, bool fits);
  /// On what Longhand computes; `whyNotDevice` is a sentence why that is no graphics card, or
  /// empty.
  void setDevice(const QString& description, const QString& whyNotDevice);
  /// Scrolls to what setDevice() said.
  void showDevice();

 signals:
  /// A short time after the last change of a control: ask for a new forecast.
  void edited();
  void applyRequested(const SettingsValues& values);

 private:
  QWidget* makeCacheSection();
  QWidget* makeContextSection();
  QWidget* makeSamplingSection();
  QWidget* makeDiskSection();
  QWidget* makeFooter();
  void watchControls();
  void fill(const SettingsValues& values);
  /// As the controls stand, also those that have no effect at the moment.
  SettingsValues shownValues() const;
  void onChanged();
  void updateDependentControls();

  SettingsValues inUse_;
  SettingsLimits limits_;
  bool fits_ = true;        // as the last forecast said
  bool isFilling_ = false;  // setValues is at work: not an edit by the user
  QTimer* editTimer_;
  QComboBox* keyNbits_;
  QComboBox* valueNbits_;
  QSpinBox* firstLayers_;
  QComboBox* groupSize_;
  QSpinBox* residualLength_;
  QSpinBox* sinkLength_;
  QSpinBox* slidingWindow_;
  QSpinBox* contextLength_;
  QScrollArea* scroll_ = nullptr;
  QLabel* contextHint_ = nullptr;
  QLabel* device_ = nullptr;
  QLabel* greedyHint_ = nullptr;
  QCheckBox* greedy_;
  QDoubleSpinBox* temperature_;
  QSpinBox* topK_;
  QDoubleSpinBox* topP_;
  QDoubleSpinBox* minP_;
  QDoubleSpinBox* repetitionPenalty_;
  QLineEdit* seed_;
  QSpinBox* maxTokens_;
  QSpinBox* threads_;
  QCheckBox* keepsSessions_;
  QSpinBox* sessionQuota_;  // GiB
  QLabel* forecast_;
  QPushButton* apply_;
  QPushButton* reset_;
};

}  // namespace longhand::ui
