package result

// Names of steps and measurements of a comparison that the page and the targets look for.
const (
	ColdStart = "cold start"
	Restart   = "restart"

	ToAnswers       = "start of the process to Services answer"
	ToChanges       = "start of the process to changes applied"
	AnswerP50       = "write to answer, p50"
	AnswerP99       = "write to answer, p99"
	PerMinute       = "processor time per minute"
	UserPerMinute   = "processor time per minute, user"
	SystemPerMinute = "processor time per minute, system"
	User            = "processor time, user"
	System          = "processor time, system"
	Resident        = "resident at the end"
	Attempted       = "connections attempted"
	Lost            = "connections lost"

	FleetPlain        = "start with plain lists"
	FleetStreamed     = "start with streamed lists"
	FleetChange       = "one endpoint replaced"
	FleetIdle         = "nothing changes"
	Received          = "received from the API server"
	ReceivedEach      = "received for each"
	ReceivedPerMinute = "to and from the API server, per minute"
	ServerTime        = "processor time of the API server"

	FleetStart   = "all nodes start at the same time"
	FleetApart   = "all nodes start one after the other"
	FleetChanges = "one endpoint of the cluster replaced"
	FleetRest    = "nothing changes in the cluster"
	FleetRestart = "restart of the API server"

	Sent            = "sent to the nodes"
	SentEach        = "sent to the nodes for each change"
	SentPerMinute   = "sent to the nodes, per minute"
	ServerTimeEach  = "processor time of the API server for each change"
	ServerPerMinute = "processor time of the API server, per minute"
	ServerPeak      = "resident size of the API server, peak"
	Lists           = "lists"
	Streams         = "streamed lists"
	Requests        = "lists and streamed lists"
	Rejected        = "rejected requests"
	LastReady       = "start of the process to ready, longest"
	UntilAll        = "server ready to change at all nodes"
)

// ChurnSteps are the steps with steady changes, the slowest first.
var ChurnSteps = []string{"20 changes/s", "100 changes/s"}
