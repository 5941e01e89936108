// SPDX-License-Identifier: Apache-2.0

package play

import (
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func TestMetric(t *testing.T) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(`# TYPE writes counter
writes{domain="n/4",outcome="landed"} 3
writes{domain="n/6",outcome="landed"} 4
# TYPE took histogram
took_bucket{le="1"} 2
took_bucket{le="+Inf"} 5
took_sum 9
took_count 5
`))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"writes is 7":                            "",
		"writes{domain=n/4} is 3":                "",
		"writes{domain=n/4,outcome=landed} is 4": "is 3, want is 4",
		"writes above 6":                         "",
		"writes above 7":                         "want above 7",
		"writes below 7":                         "want below 7",
		"writes{domain=n/5} absent":              "",
		"writes{domain=n/5} present":             "is not there",
		"writes absent":                          "2 series with the sum 7",
		"took is 5":                              "",
	} {
		wanted, err := metricOf(strings.Fields(text))
		if err != nil {
			t.Fatal(err)
		}
		err = wanted.judge(families)
		if (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"", "writes", "writes is", "writes is many", "writes equals 3", "writes{domain} is 3", "writes present 3"} {
		if wanted, err := metricOf(strings.Fields(text)); err == nil {
			t.Errorf("%q: got %+v, want an error", text, wanted)
		}
	}
}
