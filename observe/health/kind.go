package health

// Kind names something that is not as it should be. docs/health.md has a row for
// each.
type Kind string

// The kinds, the gravest first.
const (
	// NodeNotEligible: the Node is unknown, being deleted, or about to be.
	NodeNotEligible Kind = "node-not-eligible"
	// Waiting: another proxy serves this node, and this one waits for its end.
	Waiting Kind = "waiting"
	// FirstWriteHeld: nothing has been written since the start.
	FirstWriteHeld Kind = "first-write-held"
	// NodeAtFault: the kernel refuses rules that belong to no Service.
	NodeAtFault Kind = "node-at-fault"
	// WriteFailing: writes fail, and no single Service is to blame.
	WriteFailing Kind = "write-failing"
	// BatchStuck: a change waits although no write has failed.
	BatchStuck Kind = "batch-stuck"
	// APIStale: the API server cannot be read, or is silent.
	APIStale Kind = "api-stale"
	// Rival: another proxy writes rules on this node.
	Rival Kind = "rival"
	// AddressTaken: another program has an address of this one.
	AddressTaken Kind = "address-taken"
	// AuditFailing: the kernel's rules cannot be read back.
	AuditFailing Kind = "audit-failing"
	// Drift: somebody else has changed our rules.
	Drift Kind = "drift"
	// Quarantined: Services of which the kernel refuses something, a node port on
	// localhost included.
	Quarantined Kind = "quarantined"
	// Parked: Services whose actors keep failing.
	Parked Kind = "parked"
	// Stuck: Services whose actors hung and have been replaced.
	Stuck Kind = "stuck"
	// Refused: Services that there was no room for.
	Refused Kind = "refused"
)

// guide is what a person can do about each kind, in the order of the kinds.
var guide = []struct {
	kind   Kind
	advice string
}{
	{NodeNotEligible, "Nothing to do if the node is meant to go. Otherwise look at it with kubectl get node NAME -o yaml, remove the taint " +
		"ToBeDeletedByClusterAutoscaler, and check that the node name is right (--hostname-override)."},
	{Waiting, "Nothing to do while one proxy takes over from another: this one serves as soon as the other ends. If that is not meant to end, " +
		"there are two on this node: stop either."},
	{FirstWriteHeld, "The rules of the former run stay in force. If the API is stale, mend that first; otherwise look in the log for actors that fail."},
	{NodeAtFault, "The kernel lacks something that every rule needs, or somebody has taken away what our rules lead to. Read the error, check the " +
		"kernel's modules, or try the other --proxy-mode. It is tried again by itself."},
	{WriteFailing, "Read the error: a lock that another program holds, no memory, a missing module or privilege. It is tried again by itself, " +
		"and what is in the kernel stays."},
	{BatchStuck, "A write takes too long or has not begun: look for a hung iptables or nft, a held /run/xtables.lock, and the load of the node. " +
		"If it lasts, restart this process; rules stay in force meanwhile."},
	{APIStale, "What is known stays in force; changes do not arrive. Check that the API server can be reached from this node, and that the " +
		"credentials may list and watch the resource."},
	{Rival, "Two proxies undo each other's work. Stop either: kubectl -n kube-system delete daemonset kube-proxy, or the static pod or unit that " +
		"starts it; k3s has --disable-kube-proxy."},
	{AddressTaken, "What is served at this address is not: probes and scrapes ask the program that has it. Stop that program, or configure another " +
		"address (healthzBindAddress, metricsBindAddress). It is tried again by itself."},
	{AuditFailing, "Changes are still written, but damage by other programs is not seen. Read the error; it is tried again by itself."},
	{Drift, "Another program edits our tables: a firewall manager that reloads, nft flush ruleset, a second proxy. Find it and tell it to leave " +
		"them alone. What differed has been written again."},
	{Quarantined, "What they had before stays, and other Services are served. Compare the reason with the Service; it is tried again when it " +
		"changes and after audits."},
	{Parked, "Their last rules stay. The log has the failure with its stack: report it. They are tried again when the Service changes and every " +
		"five minutes."},
	{Stuck, "A replacement serves them; the goroutine that hung is lost until it returns or the process restarts. The log has its stack: report it."},
	{Refused, "They are not served. Raise the bound on the number of Services, or remove some; they are tried again when one goes."},
}

// Kinds lists all kinds, the gravest first.
func Kinds() []Kind {
	kinds := make([]Kind, len(guide))
	for i := range guide {
		kinds[i] = guide[i].kind
	}
	return kinds
}

// Advice says what a person can do about it.
func (k Kind) Advice() string {
	for i := range guide {
		if guide[i].kind == k {
			return guide[i].advice
		}
	}
	return ""
}
