package sim

import "testing"

// regressions are scenarios that have failed once, as they were printed, with
// what went wrong then.
var regressions = []struct {
	name string
	scenario
}{
	{
		// A new chain was written before one of unknown state that it leads to:
		// the control batch of the search was refused for ever.
		"a poisoned Service after a flush, with small inputs",
		scenario{74, []event{
			{setNode, 0, 0, 0xc006},
			{setService, 0, 0, 0xd57},
			{setSlice, 0, 0, 0xa41d},
			{pause, 0, 0, 0x1000},
			{poisonService, 17, 2, 0xbe6b},
			{flush, 0, 0, 0xca88},
			{setSlice, 17, 1, 0x1395},
		}},
	},
	{
		// The actor was told of the last of two changes, and never of the slice
		// that came while there was no Service.
		"a slice comes while its Service is gone",
		scenario{429, []event{
			{setService, 6, 0, 0xf6e9},
			{quiet, 0, 0, 0xbbf3},
			{removeService, 6, 0, 0xcda0},
			{setSlice, 6, 1, 0xd9c9},
			{setService, 6, 0, 0x1312},
		}},
	},
	{
		// One audit of two minutes, which failed, put off the next one by 100.
		"a rule is meddled with while the tool is slow",
		scenario{12, []event{
			{quiet, 1, 0, 0x4a5e},
			{slowTool, 0, 1, 0x4ba3},
			{meddle, 0, 0, 0x1fad},
		}},
	},
	{
		// What had landed, although its writer reported a failure, counted as
		// failed until something else was written.
		"a write lands and is reported as failed",
		scenario{3, []event{
			{setService, 13, 0, 0xb042},
			{failTool, 0, 2, 0x754b},
		}},
	},
	{
		// A tombstone that landed, and was reported as refused, left a Service
		// in quarantine that was not there, whose trials never ended.
		"a quarantined Service goes, and the tool complains",
		scenario{447, []event{
			{setService, 19, 0, 0x1},
			{quiet, 0, 0, 0},
			{poisonService, 19, 1, 0x6625},
			{quiet, 0, 0, 0},
			{failTool, 1, 3, 0x39c7},
			{removeService, 19, 0, 0xdb1e},
			{pause, 0, 0, 0x8000},
		}},
	},
}

func TestRegressions(t *testing.T) {
	for _, r := range regressions {
		t.Run(r.name, func(t *testing.T) {
			if _, err := run(t, r.scenario, nil); err != nil {
				t.Error(err)
			}
		})
	}
}
