// SPDX-License-Identifier: Apache-2.0

package sim

// mistaken are regressions in which the simulation was wrong, with what it had not considered.
var mistaken = []regression{
	{
		// Nobody knows what was in a chain that another program has
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
		// An upgrade renamed a chain that another program had altered
		// in the time of the last process but one.
		"a chain of a rejected Service is altered two processes before it is renamed",
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
		// It took the missing hairpin of a healthy Service for one that a
		// rejected Service had lost.
		"a hairpin is deleted beside a rejected Service",
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
		// An audit repaired a broken Service while nothing was to
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
		// A node port of a broken Service, left by a former process,
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
		// A new process ranks what is left of a broken Service by the
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
		// A new process takes the chain that a rejected Service shares as
		// the others want it, and does not know what the rejected one wanted before.
		"pods are detected otherwise after a restart beside a rejected Service",
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
		// The chain that a rejected Service shares with an older one
		// detects local pods as is right for the older one, which is today's way.
		"pods are detected otherwise beside a rejected Service that shares an older one's chain",
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
			{handOver, 1, 0, 0x5c94},
			{setNode, 0, 0, 0x7bab},
			{rejectService, 4, 3, 0xde6c},
			{setService, 18, 0, 0x36f},
		}},
	},
	{
		// It let another program empty a chain before the new process had
		// read the kernel, which nobody can undo in what a rejected Service keeps.
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
		// A chain to which another program led a nameless element was written anew before its
		// Service gave it up.
		"a nameless element leads to a chain that changes",
		scenario{13905, []event{
			{setService, 11, 0, 0xca08},
			{setSlice, 11, 0, 0x96f3},
			{setService, 12, 0, 0xbc37},
			{setSlice, 12, 1, 0x2672},
			{setService, 16, 0, 0xb86e},
			{setSlice, 16, 0, 0xe235},
			{alterRules, 0, 0, 0xff1f},
			{rejectMany, 1, 31, 0x4fbe},
			{handOver, 1, 0, 0xe067},
			{kill, 1, 0, 0xc40b},
			{settle, 1, 0, 0xa2a2},
			{rejectService, 11, 66, 0xe826},
		}},
	},
	{
		// Of two chains that became one, the simulation kept the one that had no rules yet.
		"a takeover that has made a chain without its rules, and another release",
		scenario{1336, []event{
			{pause, 0, 0, 0x1},
			{setService, 12, 0, 0xcc5b},
			{setSlice, 12, 2, 0xf614},
			{upgrade, 0, 0, 0x157},
			{stallService, 8, 62, 0xbc2},
			{pause, 0, 0, 0x40},
			{upgrade, 1, 0, 0x7d98},
		}},
	},
	{
		// Which of the two keeps it depends on who had it last.
		"two broken Services give up one address",
		scenario{4250, []event{
			{stallService, 10, 31, 0xea9c},
			{setService, 23, 0, 0x5ef9},
			{setService, 22, 0, 0xce58},
			{setSlice, 22, 2, 0xbcfb},
			{pause, 0, 0, 0x200},
			{setService, 9, 0, 0xb1d},
			{pause, 0, 0, 0x8},
			{breakService, 22, 38, 0x80e2},
			{deleteChain, 0, 0, 0x64f1},
			{pause, 0, 0, 0x4000},
			{failRequests, 0, 2, 0xe556},
			{deleteChain, 0, 0, 0xd49f},
			{breakService, 23, 40, 0xb925},
			{suspend, 0, 0, 0x5e70},
		}},
	},
	{
		// A process ended when a divided write had made the chains of a Service, and not yet all of their rules.
		"a rejected Service of which only the chains were made",
		scenario{636, []event{
			{rejectService, 1, 34, 0x390a},
			{setSlice, 1, 0, 0x41bc},
			{pause, 0, 0, 0x200},
			{upheaval, 0, 0, 0xb102},
			{addForeignSet, 0, 0, 0xd1c4},
			{kill, 0, 0, 0x96e2},
		}},
	},
}
