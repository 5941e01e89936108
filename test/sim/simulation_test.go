package sim

import (
	"slices"
	"testing"
)

// regressions are scenarios that have failed once, as they were printed, with what went
// wrong then.
var regressions = []struct {
	name string
	scenario
}{
	{
		// A new chain was written before one of unknown state that it leads to: the
		// control batch of the search was refused for ever.
		"a rejected Service after everything was deleted",
		scenario{74, []event{
			{setNode, 0, 0, 0xc006},
			{setService, 0, 0, 0xd57},
			{setSlice, 0, 0, 0xa41d},
			{pause, 0, 0, 0x1000},
			{rejectService, 17, 2, 0xbe6b},
			{deleteTable, 0, 0, 0xca88},
			{setSlice, 17, 1, 0x1395},
		}},
	},
	{
		// The actor was told of the last of two changes, and never of the slice that came
		// while there was no Service.
		"a slice comes while its Service is gone",
		scenario{429, []event{
			{setService, 6, 0, 0xf6e9},
			{settle, 0, 0, 0xbbf3},
			{removeService, 6, 0, 0xcda0},
			{setSlice, 6, 1, 0xd9c9},
			{setService, 6, 0, 0x1312},
		}},
	},
	{
		// One audit of two minutes, which failed, put off the next one by 100.
		"rules are altered while the kernel is slow",
		scenario{12, []event{
			{settle, 1, 0, 0x4a5e},
			{slowRequests, 0, 1, 0x4ba3},
			{alterRules, 0, 0, 0x1fad},
		}},
	},
	{
		// What had landed, although its writer reported a failure, counted as failed until
		// something else was written.
		"a write lands and is reported as failed",
		scenario{3, []event{
			{setService, 13, 0, 0xb042},
			{failRequests, 0, 2, lostAfterwards},
		}},
	},
	{
		// A group was held before a read showed that it had landed, and so reverted.
		"the answer to a try is lost at a start",
		scenario{5162, []event{
			{setService, 11, 0, 0x9b98},
			{setSlice, 11, 1, 0x98c1},
			{settle, 1, 0, 0x9fb5},
			{failRequests, 0, 3, 0xa739},
			{rejectService, 1, 2, 0x4ced},
			{deleteTable, 0, 0, 0x1577},
			{upgrade, 1, 0, 0xe8a0},
		}},
	},
	{
		// A tombstone that landed, and was reported as refused, left a Service in
		// quarantine that was not there, whose trials never ended.
		"a quarantined Service goes, and transactions fail",
		scenario{447, []event{
			{setService, 19, 0, 0x1},
			{settle, 0, 0, 0},
			{rejectService, 19, 1, 0x6625},
			{settle, 0, 0, 0},
			{failRequests, 1, 3, lostAfterwards},
			{removeService, 19, 0, 0xdb1e},
			{pause, 0, 0, 0x8000},
		}},
	},
	{
		// The removal of a Service's chains was interrupted after their rules had gone. When
		// its last state was put back, its frontends led to the empty chains at first.
		"a removal is interrupted and taken back",
		scenario{30, []event{
			{setService, 9, 0, 0x86ca},
			{setSlice, 9, 0, 0xac64},
			{setSlice, 9, 1, 0x15e5},
			{setService, 10, 0, 0x513c},
			{setSlice, 10, 2, 0x39d8},
			{setSlice, 10, 1, 0xbe18},
			{pause, 0, 0, 0x2000},
			{failRequests, 1, 1, 0x9477},
			{slowRequests, 1, 2, 0x331},
			{failRequests, 1, 1, 0x900c},
			{setSlice, 9, 0, 0x591c},
			{pause, 0, 0, 0x10},
			{setService, 19, 0, 0x2c35},
			{pause, 0, 0, 0x8000},
			{failRequests, 1, 3, 0x5556},
			{settle, 0, 0, 0xb761},
			{setService, 13, 0, 0x4e11},
			{pause, 0, 0, 0x8000},
			{setService, 19, 0, 0x19d8},
			{pause, 0, 0, 0x8000},
			{setSlice, 10, 1, 0x11c9},
			{pause, 0, 0, 0x8},
		}},
	},
	{
		// A refused Service's elements led to a chain that only another Service claimed. When
		// that went, its chain could not be deleted.
		"a refused Service shares a chain with one that goes",
		scenario{84, []event{
			{setService, 13, 0, 0xa3a6},
			{setService, 18, 0, 0x6cca},
			{setSlice, 18, 0, 0xd15e},
			{setSlice, 13, 1, 0xd00},
			{deleteChain, 0, 0, 0xba66},
			{rejectService, 13, 2, 0xe64f},
			{restart, 0, 0, 0xce2a},
		}},
	},
	{
		// A refused Service that was never served kept a chain that it only wants.
		"a refused Service wants a chain of one that goes",
		scenario{71, []event{
			{setSlice, 9, 1, 0x1cb3},
			{setSlice, 12, 0, 0xae0},
			{rejectService, 9, 1, 0xf5a8},
			{setService, 12, 0, 0xaff2},
			{restart, 1, 0, 0x5658},
			{removeService, 12, 0, 0xd7c2},
		}},
	},
	{
		// A suspect of which nothing was pending counted as waiting for ever.
		"a Service is repaired while another is refused",
		scenario{47, []event{
			{setService, 20, 0, 0x290a},
			{setSlice, 20, 1, 0x2878},
			{addForeignChain, 1, 0, 0x3e41},
			{restart, 1, 0, 0xc6ea},
			{setSlice, 20, 1, 0x824e},
			{pause, 0, 0, 0x4},
			{rejectService, 14, 1, 0xcd9a},
		}},
	},
	{
		// Elements of a Service's own set counted as anybody's, and were restored after the
		// set had gone: the kernel refused everything.
		"a Service has given up slots when its process is replaced",
		scenario{70, []event{
			{setService, 2, 0, 0xaa34},
			{setSlice, 2, 1, 0x8b52},
			{rejectService, 6, 1, 0x349},
			{setService, 7, 0, 0x2ca9},
			{restart, 1, 0, 0x938e},
			{setSlice, 2, 0, 0xaaf},
			{breakService, 7, 2, 0xdae5},
		}},
	},
	{
		// What a Service had was wanted with a chain as the refused one wants it, and without
		// the new chain which that leads to: the kernel refused everything, for ever.
		"an upgrade changes a chain that a refused Service shares",
		scenario{24, []event{
			{setService, 12, 0, 0x3b63},
			{setSlice, 12, 0, 0xf34d},
			{rejectService, 3, 1, 0x613d},
			{settle, 0, 0, 0},
			{setSlice, 3, 2, 0x9b36},
			{upgrade, 1, 0, 0xb630},
		}},
	},
	{
		// Node ports went on answering at an address that the new settings leave out, for as
		// long as a Service was refused that may have had the element.
		"a hand-over takes an address from node ports beside a refused Service",
		scenario{24, []event{
			{setService, 3, 0, 0x9d},
			{setSlice, 3, 0, 0xf34d},
			{setNode, 0, 0, 0x1},
			{reconfigure, 0, 0, 0x1},
			{settle, 0, 0, 0},
			{rejectService, 3, 1, 0x613d},
			{settle, 0, 0, 0},
			{handOver, 0, 0, 0x2},
		}},
	},
	{
		// The simulation was wrong: nobody knows what was in a chain that another program has
		// emptied before the process that knew it ended.
		"a chain is emptied, and its Service breaks as its process is killed",
		scenario{24, []event{
			{setService, 3, 0, 0x9d},
			{setSlice, 3, 0, 0xf34d},
			{settle, 0, 0, 0},
			{breakService, 3, 1, 0x613d},
			{deleteChain, 0, 0, 0},
			{kill, 0, 0, 0},
		}},
	},
	{
		// What had landed of the first, divided write was taken back from all that were
		// suspected of its refusal: here a chain went back to what was left of it.
		"a chain is emptied before a hand-over beside a refused Service",
		scenario{1072, []event{
			{setService, 21, 0, 0x8e3c},
			{setSlice, 21, 0, 0x78de},
			{rejectService, 7, 2, 0xb4fb},
			{settle, 1, 0, 0x6590},
			{deleteChain, 0, 0, 0x4b42},
			{setService, 1, 0, 0x9085},
			{handOver, 0, 0, 0x1026},
		}},
	},
	{
		// Here the whole table was gone.
		"a rival deletes the table before a hand-over beside a refused Service",
		scenario{1365, []event{
			{setService, 0, 0, 0x96c2},
			{setSlice, 0, 0, 0x88bc},
			{setService, 8, 0, 0x1d26},
			{setSlice, 8, 0, 0x4da6},
			{rejectService, 2, 1, 0x203e},
			{setService, 17, 0, 0xa352},
			{settle, 0, 0, 0x22b6},
			{slowRequests, 1, 2, 0x8f3a},
			{rival, 1, 0, 0x50f6},
			{pause, 0, 0, 0x10000},
			{handOver, 1, 0, 0x3fbc},
		}},
	},
	{
		// The simulation was wrong: an upgrade renamed a chain that another program had altered
		// in the time of the last process but one.
		"a chain of a refused Service is altered two processes before it is renamed",
		scenario{690, []event{
			{setService, 7, 0, 0xcf0},
			{setSlice, 7, 0, 0xd6a6},
			{alterRules, 0, 0, 0x9586},
			{handOver, 0, 0, 0x3f1b},
			{rejectMany, 1, 33, 0xfc4c},
			{removeService, 0, 0, 0x807f},
			{settle, 1, 0, 0xf2eb},
			{upgrade, 0, 0, 0x5a1d},
		}},
	},
	{
		// The simulation was wrong: it took the missing hairpin of a healthy Service for one that a
		// refused Service had lost.
		"a hairpin is deleted beside a refused Service",
		scenario{1418, []event{
			{setService, 7, 0, 0xe7d7},
			{setService, 9, 0, 0x3eb8},
			{setService, 10, 0, 0xe65e},
			{settle, 0, 0, 0xacd5},
			{removeService, 10, 0, 0xe708},
			{setSlice, 8, 2, 0xa0dc},
			{settle, 1, 0, 0x2b51},
			{setSlice, 7, 0, 0x7ae4},
			{setSlice, 8, 0, 0x8963},
			{rejectService, 6, 3, 0x36a5},
			{setService, 8, 0, 0x8522},
			{setService, 9, 0, 0xfd95},
			{upheaval, 0, 0, 0xb505},
			{restart, 1, 0, 0xbfc0},
			{pause, 0, 0, 0x40},
			{deleteElement, 0, 0, 0x51b},
		}},
	},
	{
		// The simulation was wrong: an audit repaired a broken Service while nothing was to
		// change.
		"an element of a broken Service is deleted after a hand-over",
		scenario{609, []event{
			{setSlice, 0, 1, 0xd241},
			{setSlice, 2, 1, 0x2bcf},
			{setService, 3, 0, 0xa574},
			{setService, 2, 0, 0xaab3},
			{setService, 4, 0, 0x4e58},
			{setSlice, 3, 1, 0x223e},
			{setService, 0, 0, 0xb1de},
			{handOver, 0, 0, 0xdcc5},
			{failRequests, 1, 2, 0x65bb},
			{addForeignSet, 1, 0, 0x891c},
			{breakService, 3, 1, 0x270d},
			{settle, 1, 0, 0x486d},
			{settle, 0, 0, 0xcc57},
			{deleteElement, 1, 0, 0x158d},
		}},
	},
	{
		// Here a chain stayed as the new one, and its set without the elements.
		"a Service gets affinity as its process is replaced beside refused ones",
		scenario{511, []event{
			{setService, 1, 0, 0x9820},
			{setSlice, 1, 1, 0xcdc3},
			{setService, 2, 0, 0x4d53},
			{setSlice, 2, 1, 0x70fb},
			{setService, 20, 0, 0xae59},
			{setSlice, 20, 0, 0x609d},
			{setSlice, 20, 1, 0x6eba},
			{settle, 0, 0, 0x75c2},
			{rejectMany, 3, 32, 0x5633},
			{setService, 2, 0, 0x6f40},
			{handOver, 0, 0, 0x3ec5},
			{reconfigure, 1, 0, 0x29a4},
		}},
	},
	{
		// The ranges of allowed sources that a former process had left went before the mark that
		// the sources are limited.
		"a Service loses its source ranges as its process is replaced",
		scenario{2939, []event{
			{setService, 18, 0, 0xe38e},
			{setSlice, 18, 0, 0x51bc},
			{settle, 0, 0, 0x9e84},
			{setService, 18, 0, 0x2251},
			{handOver, 0, 0, 0x876e},
		}},
	},
	{
		// The simulation was wrong: a node port of a broken Service, left by a former process,
		// answers on addresses that the node has only now.
		"the host gets an address as the process of a broken Service is replaced",
		scenario{4777, []event{
			{setService, 16, 0, 0xa0bb},
			{alterRules, 1, 0, 0x24cf},
			{rejectMany, 1, 1, 0xda8},
			{setService, 4, 0, 0xd051},
			{setHosts, 0, 0, 0x5614},
			{setService, 19, 0, 0xf1b9},
			{setService, 22, 0, 0x1ec3},
			{breakService, 16, 64, 0xc4e3},
			{upgrade, 1, 0, 0x55f2},
			{setService, 18, 0, 0x8619},
		}},
	},
	{
		// The simulation was wrong: a new process ranks what is left of a broken Service by the
		// age that the API says now.
		"a broken Service is older after a restart",
		scenario{6363, []event{
			{setService, 4, 0, 0x48e1},
			{alterRules, 0, 0, 0x46b3},
			{breakService, 4, 2, 0x2b82},
			{kill, 0, 0, 0x5b38},
			{setService, 5, 0, 0xc759},
		}},
	},
	{
		// The simulation was wrong: a new process takes the chain that a refused Service shares as
		// the others want it, and does not know what the refused one wanted before.
		"pods are detected otherwise after a restart beside a refused Service",
		scenario{5158, []event{
			{setService, 5, 0, 0x5b44},
			{setSlice, 5, 2, 0x336f},
			{setService, 19, 0, 0x3aaa},
			{setSlice, 19, 0, 0x5ffd},
			{deleteElement, 0, 0, 0xdcec},
			{rejectMany, 3, 1, 0xb13},
			{restart, 1, 0, 0xa2da},
			{upheaval, 0, 0, 0xda94},
		}},
	},
	{
		// The simulation was wrong: the chain that a refused Service shares with an older one
		// detects local pods as is right for the older one, which is today's way.
		"pods are detected otherwise beside a refused Service that shares an older one's chain",
		scenario{8460, []event{
			{setService, 3, 0, 0xf4f0},
			{setService, 4, 0, 0x2487},
			{setSlice, 4, 0, 0x5662},
			{setSlice, 4, 1, 0x3336},
			{setService, 19, 0, 0x1c55},
			{setService, 22, 0, 0x3fcd},
			{setSlice, 22, 0, 0x7b30},
			{setSlice, 22, 1, 0x2d91},
			{alterRules, 0, 0, 0x82ba},
			{reconfigure, 1, 0, 0x5c94},
			{setNode, 0, 0, 0x7bab},
			{rejectService, 4, 3, 0xde6c},
			{setService, 18, 0, 0x36f},
		}},
	},
	{
		// An endpoint whose name another program had taken stayed in a Service's table while
		// some other Service was broken, since it might have been of that one.
		"an endpoint without a name beside a broken Service",
		scenario{8612, []event{
			{setService, 12, 0, 0x5ef4},
			{setSlice, 12, 0, 0x36ca},
			{setService, 23, 0, 0x3333},
			{setSlice, 23, 0, 0x98f0},
			{setSlice, 23, 1, 0xcafe},
			{setSlice, 23, 2, 0x9a3d},
			{settle, 0, 0, 0x3426},
			{delayEvents, 3, 0, 0x4da7},
			{setSlice, 23, 2, 0xb58e},
			{alterRules, 0, 0, 0x34},
			{breakService, 12, 64, 0x6b1c},
			{upgrade, 1, 0, 0x70f5},
		}},
	},
	{
		// The simulation was wrong: it let another program empty a chain before the new process had
		// read the kernel, which nobody can undo in what a refused Service keeps.
		"a chain is emptied while a new process reads the kernel slowly",
		scenario{9226, []event{
			{setService, 3, 0, 0x9e},
			{setSlice, 3, 0, 0xf34d},
			{settle, 0, 0, 0},
			{kill, 0, 0, 0},
			{slowRequests, 0, 1, 0x4e},
			{slowRequests, 0, 1, 0x4e},
			{rejectService, 3, 1, 0x6146},
			{deleteChain, 0, 0, 0x23},
		}},
	},
	{
		// A process ended after it had emptied chains that nobody wants, and before it removed the
		// frontends that led there. The next one kept both for a refused Service.
		"a removal ends between two transactions, and its Service is refused",
		scenario{10062, []event{
			{setService, 3, 0, 0xad},
			{setSlice, 3, 0, 0xf34f},
			{handOver, 0, 0, 0},
			{settle, 0, 0, 0},
			{setService, 3, 0, 0x1012},
			{handOver, 0, 0, 0},
			{kill, 0, 0, 0x142},
			{rejectService, 3, 1, 0x6147},
		}},
	},
}

// lostAfterwards is a variant of failRequests: transactions are carried out, and their
// answers are lost.
const lostAfterwards = 14

func TestRegressions(t *testing.T) {
	if f := failureOf(lostAfterwards, 1); !f.taken || f.skip > 0 {
		t.Errorf("the variant means %+v now", f)
	}
	for _, r := range regressions {
		t.Run(r.name, func(t *testing.T) {
			if _, err := run(t, r.scenario, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// A fault that needs two events far apart is found among a hundred.
func TestShrinkKeepsWhatIsNeeded(t *testing.T) {
	var events []event
	for i := range 100 {
		events = append(events, event{do: setSlice, n: i})
	}
	tries := 0
	got := shrink(events, func(e []event) bool {
		tries++
		has := func(n int) bool { return slices.ContainsFunc(e, func(e event) bool { return e.n == n }) }
		return has(17) && has(83)
	}, 1000)
	if len(got) != 2 || got[0].n != 17 || got[1].n != 83 {
		t.Errorf("got %v, want events 17 and 83", got)
	}
	if tries > 100 {
		t.Errorf("%d tries for a pair in a hundred events", tries)
	}
}

func TestShrinkStopsInTime(t *testing.T) {
	tries := 0
	shrink(make([]event, 1000), func([]event) bool { tries++; return false }, 10)
	if tries != 10 {
		t.Errorf("asked %d times, want 10", tries)
	}
}

func TestEventsPrintAsGo(t *testing.T) {
	got := literal([]event{{setSlice, 3, 1, 0x2a}, {pause, 0, 0, 512}})
	want := "[]event{\n\t{setSlice, 3, 1, 0x2a},\n\t{pause, 0, 0, 0x200},\n}"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
