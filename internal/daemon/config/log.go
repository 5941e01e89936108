package config

import logsapi "k8s.io/component-base/logs/api/v1"

// debugVerbosity is the verbosity of klog from which on Kubernetes components
// tell what is for debugging (its logging conventions).
const debugVerbosity = 4

// Log says what is logged, and how.
type Log struct {
	// Level is debug, info, warn or error.
	Level string
	// Format is auto, console or json.
	Format string
	// Verbosity is klog's, for the libraries that write to it.
	Verbosity int
	// VModule is klog's verbosity by file.
	VModule logsapi.VModuleConfiguration
}

// Log gives the log settings: Sluice's own where they are set, else what those of
// kube-proxy come down to.
func (c *Config) Log() Log {
	l := Log{
		Level: c.Sluice.Log.Level, Format: c.Sluice.Log.Format,
		Verbosity: int(c.KubeProxy.Logging.Verbosity), VModule: c.KubeProxy.Logging.VModule,
	}
	if l.Level == "" {
		l.Level = "info"
		if l.Verbosity >= debugVerbosity {
			l.Level = "debug"
		}
	}
	if l.Format == "" {
		l.Format = "console"
		if c.KubeProxy.Logging.Format == logsapi.JSONLogFormat {
			l.Format = "json"
		}
	}
	return l
}
