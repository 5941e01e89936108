package config

import (
	"math"
	"strings"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// checkLogging checks the logging section as every component of Kubernetes does.
func checkLogging(k *v1alpha1.KubeProxyConfiguration, found *findings) {
	l, gates := &k.Logging, effectiveGates(k.FeatureGates)
	switch {
	case l.Format != logsapi.DefaultLogFormat && l.Format != logsapi.JSONLogFormat:
		found.wrong("logging.format", l.Format, "text or json")
	case l.Format == logsapi.JSONLogFormat && !gates[gateLoggingBetaOptions].Enabled:
		found.wrong("logging.format", l.Format, "text, unless the feature gate %s is on", gateLoggingBetaOptions)
	}
	if d := l.FlushFrequency.Duration.Duration; d <= 0 {
		found.wrong("logging.flushFrequency", d, "more than 0")
	}
	checkVerbosity("logging.verbosity", l.Verbosity, found)
	for i, item := range l.VModule {
		field := element("logging.vmodule", i)
		if item.FilePattern == "" || strings.ContainsAny(item.FilePattern, "=,") {
			found.wrong(field+".filePattern", item.FilePattern, "a pattern for names of files, without = and commas")
		}
		checkVerbosity(field+".verbosity", item.Verbosity, found)
	}
	if len(l.VModule) > 0 && l.Format == logsapi.JSONLogFormat {
		found.wrong("logging.vmodule", logsapi.VModuleConfigurationPflag(&l.VModule).String(), "nothing, since logging.format is json")
	}
	if gates[gateLoggingAlphaOptions].Enabled {
		return
	}
	checkRouting("logging.options.text", &l.Options.Text.OutputRoutingOptions, found)
	checkRouting("logging.options.json", &l.Options.JSON.OutputRoutingOptions, found)
}

func checkVerbosity(field string, v logsapi.VerbosityLevel, found *findings) {
	if v > math.MaxInt32 {
		found.wrong(field, v, "0 to %d", math.MaxInt32)
	}
}

// checkRouting refuses the options that are behind a feature gate.
func checkRouting(field string, o *logsapi.OutputRoutingOptions, found *findings) {
	if o.SplitStream {
		found.wrong(field+".splitStream", true, "false, unless the feature gate %s is on", gateLoggingAlphaOptions)
	}
	if o.InfoBufferSize.Value() != 0 {
		found.wrong(field+".infoBufferSize", o.InfoBufferSize.String(), "0, unless the feature gate %s is on", gateLoggingAlphaOptions)
	}
}
