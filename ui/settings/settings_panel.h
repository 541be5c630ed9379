#pragma once
// The panel where every number of the KV cache, the context and the sampling can be chosen. Only
// valid combinations can be entered: ranges are bounded, and what has no effect is greyed out.
// Nothing changes until Apply; while values are edited a forecast says what they would need, and a
// line what is not applied yet.
//
// Every control is a line of a table (setting_table.h): add...() makes both.

#include <QWidget>

#include "ui/settings/settings_values.h"

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

template <typename Box>
class NumberField;
class SettingHint;
class SettingSection;
class SettingTable;

class SettingsPanel final : public QWidget {
  Q_OBJECT
  Q_DISABLE_COPY_MOVE(SettingsPanel)

 public:
  explicit SettingsPanel(QWidget* parent);

  void setLimits(const SettingsLimits& limits);
  /// What the button "Defaults" shows.
  void setDefaults(const SettingsValues& values);
  /// The values in use: shown, and what "Undo edits" goes back to. Emits nothing but edited().
  void setValues(const SettingsValues& values);
  /// The same, but what the user has edited and not applied yet stays: only the rest follows.
  void followValues(const SettingsValues& values);
  /// The values in use with what was edited.
  SettingsValues values() const { return withEdits(inUse_); }
  /// The same on values that are in use by now.
  SettingsValues withEdits(const SettingsValues& values) const;
  /// True while values() differs from the values in use.
  bool isEdited() const { return values() != inUse_; }
  /// Emits edited() after a short time without another call: for what a forecast depends on.
  void askForForecast();
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
  /// withEdits() says for what.
  void applyRequested();

 private:
  /// What stands beside a control and under it.
  struct Words {
    QString label;
    QString hint;
  };
  template <typename Number>
  struct Range {
    Number least;
    Number most;
    Number step;
    QString atLeast;  // instead of the number; may be empty
  };

  static constexpr int kMinContextLength = 64;

  // In settings_panel_rows.cpp. Each adds a control, its row and its line of the table; `access`
  // gives the value's place in SettingsValues.
  template <typename Access>
  QComboBox* addChoice(SettingSection& section, const QString& name, const Words& words,
                       const QList<int>& choices, const QString& unit, Access access);
  template <typename Access>
  QSpinBox* addCount(SettingSection& section, const QString& name, const Words& words,
                     const Range<int>& range, Access access);
  template <typename Access>
  QDoubleSpinBox* addNumber(SettingSection& section, const QString& name, const Words& words,
                            const Range<double>& range, Access access);
  template <typename Box, typename Show, typename Store>
  SettingHint* addField(SettingSection& section, NumberField<Box>* box, const Words& words,
                        Show show, Store store);
  void addContext(SettingSection& section);
  void addGreedyAndTemperature(SettingSection& section);
  void addSeed(SettingSection& section);

  QWidget* makeCacheSection();
  QWidget* makeContextSection();
  QWidget* makeSamplingSection();
  QWidget* makeDiskSection();

  QWidget* makeFooter();
  void onChanged();
  void updateDependentControls();
  void updateSamplingControls();
  void updateContextHint();
  void updateFooter();
  /// As the controls show it: the trained length as a number.
  SettingsValues asShown(SettingsValues values) const;

  SettingTable* table_;
  SettingsValues inUse_;
  SettingsValues defaults_;
  SettingsLimits limits_;
  bool fits_ = true;  // as the last forecast said
  QTimer* editTimer_;
  // Those that depend on one another.
  QComboBox* keyNbits_ = nullptr;
  QComboBox* valueNbits_ = nullptr;
  QSpinBox* firstLayers_ = nullptr;
  QComboBox* groupSize_ = nullptr;
  QSpinBox* residualLength_ = nullptr;
  QSpinBox* sinkLength_ = nullptr;
  QSpinBox* slidingWindow_ = nullptr;
  QSpinBox* contextLength_ = nullptr;
  SettingHint* contextHint_ = nullptr;
  QSpinBox* threads_ = nullptr;
  QCheckBox* greedy_ = nullptr;
  SettingHint* greedyHint_ = nullptr;
  QDoubleSpinBox* temperature_ = nullptr;
  QList<QWidget*> randomControls_;  // that need a sampler that is not greedy
  QCheckBox* keepsSessions_ = nullptr;
  QSpinBox* sessionQuota_ = nullptr;
  QScrollArea* scroll_ = nullptr;
  QLabel* device_ = nullptr;
  QLabel* forecast_;
  QLabel* edits_;
  QPushButton* defaultsButton_;
  QPushButton* undo_;
  QPushButton* apply_;
};

}  // namespace longhand::ui
