package config

import "testing"

// TestLoggingGates: options that are not stable need their feature gate.
func TestLoggingGates(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"--log-text-split-stream"}, `--log-text-split-stream true: want false, unless the feature gate LoggingAlphaOptions is on`},
		{[]string{"--log-json-info-buffer-size=1Ki"}, `--log-json-info-buffer-size "1Ki": want 0, unless the feature gate LoggingAlphaOptions is on`},
		{[]string{"--log-text-split-stream", "--log-text-info-buffer-size=1Ki", "--feature-gates=LoggingAlphaOptions=true"}, "nothing"},
		{[]string{"--logging-format=json", "--feature-gates=LoggingBetaOptions=false"}, `--logging-format "json": want text, unless the feature gate LoggingBetaOptions is on`},
		{[]string{"--logging-format=json", "--vmodule=a=1"}, `--vmodule "a=1": want nothing, because logging.format is json`},
	} {
		if said := refused(c.words...); said != c.want {
			t.Errorf("%v: %s\nwant %s", c.words, said, c.want)
		}
	}
}
