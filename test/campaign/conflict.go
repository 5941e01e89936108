// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

var frontendsMap = regexp.MustCompile(`map (frontends\S*) `)

// rival is another program that changes the proxy's rules.
type rival struct {
	node          *netns.Namespace
	mode, variant string
	// victim is the Service whose rules it removes.
	victim int
}

func (r *trial) rival() *rival {
	return &rival{node: r.p.Namespace, mode: r.mode, variant: r.variant, victim: r.c.roles().victim}
}

// run runs a program again while the legacy variant says that the table has changed meanwhile: the proxy has another lock.
func (r *rival) run(input string, words ...string) (printed []byte, err error) {
	for range 20 {
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Stdin = strings.NewReader(input)
		var complaint bytes.Buffer
		cmd.Stderr = &complaint
		if printed, err = netnstest.Output(r.node, cmd); err == nil {
			return printed, nil
		}
		err = fmt.Errorf("rival: %s: %w: %s", strings.Join(words, " "), err, complaint.Bytes())
		if !strings.Contains(err.Error(), "Resource temporarily unavailable") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, err
}

// tool returns the name of an iptables program, for example "iptables-save".
func (r *rival) tool(family service.Family, suffix string) string {
	variant := r.variant
	if variant == "" {
		variant = "nft"
	}
	return service.PerFamily[string]{service.IPv4: "iptables-", service.IPv6: "ip6tables-"}[family] + variant + suffix
}

func nftFamily(family service.Family) string {
	return service.PerFamily[string]{service.IPv4: "ip", service.IPv6: "ip6"}[family]
}

// touch adds something that no packet notices.
func (r *rival) touch() error {
	for _, family := range service.Families {
		var err error
		if r.mode == "nftables" {
			_, err = r.run("", "nft", "add", "chain", nftFamily(family), "kube-proxy", "campaign")
		} else {
			_, err = r.run("", r.tool(family, ""), "-w", "-t", "nat", "-A", "KUBE-SERVICES", "-m", "comment", "--comment", "campaign")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// edit removes what leads to the victim's ClusterIPs over TCP.
func (r *rival) edit() error {
	for _, family := range service.Families {
		addr := clusterAddr(family, r.victim, webPort).Addr().String()
		if r.mode == "nftables" {
			listed, err := r.run("", "nft", "list", "maps", nftFamily(family))
			if err != nil {
				return err
			}
			found := frontendsMap.FindSubmatch(listed) // releases name it differently
			if found == nil {
				return fmt.Errorf("%s: there is no map of frontends", family)
			}
			_, err = r.run(fmt.Sprintf("delete element %s kube-proxy %s { %s . tcp . %d }\n",
				nftFamily(family), found[1], addr, webPort), "nft", "-f", "-")
			if err != nil {
				return err
			}
			continue
		}
		saved, err := r.run("", r.tool(family, "-save"), "-t", "nat")
		if err != nil {
			return err
		}
		var input strings.Builder
		for line := range strings.Lines(string(saved)) {
			if strings.HasPrefix(line, "-A ") && strings.Contains(line, " -d "+addr+"/") && strings.Contains(line, "-p tcp") {
				input.WriteString("-D" + strings.TrimPrefix(line, "-A"))
			}
		}
		if input.Len() == 0 {
			return fmt.Errorf("rival: no rule for %s in\n%s", addr, saved)
		}
		if _, err := r.run("*nat\n"+input.String()+"COMMIT\n", r.tool(family, "-restore"), "-w", "--noflush"); err != nil {
			return err
		}
	}
	return nil
}

// wipe removes all rules.
func (r *rival) wipe() error {
	for _, family := range service.Families {
		var err error
		if r.mode == "nftables" {
			_, err = r.run("", "nft", "delete", "table", nftFamily(family), "kube-proxy")
		} else {
			_, err = r.run("", r.tool(family, ""), "-w", "-t", "nat", "-F")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// replace removes all rules, of other programs too, and loads those of another program in the same transaction, if any.
// The legacy programs have only their own.
func (r *rival) replace(rules string) error {
	if r.mode == "nftables" || r.tool(service.IPv4, "") == "iptables-nft" {
		_, err := r.run("flush ruleset\n"+rules, "nft", "-f", "-")
		return err
	}
	for _, family := range service.Families {
		if _, err := r.run("*nat\nCOMMIT\n*filter\nCOMMIT\n", r.tool(family, "-restore"), "-w"); err != nil {
			return err
		}
	}
	return nil
}
