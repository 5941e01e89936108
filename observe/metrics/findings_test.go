package metrics

import "testing"

func TestFindingsAreAskedForAtEachScrape(t *testing.T) {
	now := []Finding{{"parked", "", 0}, {"drift", domain4, 0}, {"drift", domain6, 0}}
	m, err := New(Config{Mode: modeNFTables, Findings: func() []Finding { return now }})
	if err != nil {
		t.Fatal(err)
	}
	want := samples{
		`sluice_health_finding{domain="",finding="parked"}`:             0,
		`sluice_health_finding{domain="iptables/IPv4",finding="drift"}`: 0,
		`sluice_health_finding{domain="iptables/IPv6",finding="drift"}`: 0,
	}
	scraped(t, m).expect(t, want)
	now[0].Count, now[2].Count = 12, 1
	want[`sluice_health_finding{domain="",finding="parked"}`] = 12
	want[`sluice_health_finding{domain="iptables/IPv6",finding="drift"}`] = 1
	scraped(t, m).expect(t, want)
}
