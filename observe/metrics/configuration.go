package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Configuration is the state of the configuration file.
type Configuration struct {
	// Hash identifies the configuration that is applied.
	Hash string
	// Loaded is when the file last was valid, or was applied. Failed says that it has changed since, and was rejected.
	Loaded time.Time
	Failed bool
	// Pending says that it has changed, and that the change is not applied (reload: off).
	Pending bool
}

var (
	configHashDesc = prometheus.NewDesc("sluice_config_hash",
		"Always 1; the label contains the hash of the applied configuration.", []string{"hash"}, nil)
	configSuccessDesc = prometheus.NewDesc("sluice_config_last_reload_successful",
		"1 if the newest configuration file is valid and was accepted, 0 if it was rejected.", nil, nil)
	configTimeDesc = prometheus.NewDesc("sluice_config_last_reload_success_timestamp_seconds",
		"Unix time at which a configuration file was last accepted.", nil, nil)
	configPendingDesc = prometheus.NewDesc("sluice_config_pending",
		"1 if a changed configuration file is not applied because of reload: off, otherwise 0.", nil, nil)
)

func (m *Metrics) collectConfiguration(to chan<- prometheus.Metric) {
	c := m.config.Configuration()
	send(to, configHashDesc, prometheus.GaugeValue, 1, c.Hash)
	send(to, configSuccessDesc, prometheus.GaugeValue, flag(!c.Failed))
	send(to, configTimeDesc, prometheus.GaugeValue, float64(c.Loaded.UnixMilli())/1000)
	send(to, configPendingDesc, prometheus.GaugeValue, flag(c.Pending))
}
