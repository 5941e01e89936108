// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// busy is the Service of a test with traffic, idle one without endpoints.
const busy, idle = 44, 9

// filtering combines filters with words, shows the number of matches, and marks them.
func filtering(s *stand) {
	namespace, name := nameOf(busy)
	for _, c := range []struct{ search, matches string }{
		{"web", fmt.Sprintf("%d of %d", services/len(teams), services)}, // not by the name of the port, which is web everywhere
		{"ns:" + namespace, fmt.Sprintf("%d of %d", services/len(teams), services)},
		{"ns:" + namespace + " port:80 state:applied " + name, fmt.Sprintf("1 of %d", services)},
		{"port:web queue-0044", fmt.Sprintf("1 of %d", services)},
		{"ns:" + namespace + " port:81", fmt.Sprintf("0 of %d", services)},
		{"state:held", fmt.Sprintf("0 of %d", services)},
	} {
		s.press("/", c.search)
		s.holds(c.search, text("#matches")+fmt.Sprintf(" === %q", c.matches))
		s.press(kb.Escape, kb.Escape)
	}
	s.press("/", "queue-0044")
	s.holds("the match is marked", text(row(namespace+"/"+name)+" mark")+" === 'queue-0044'")
	s.holds("the port has its name", text(row(namespace+"/"+name))+".includes('80/TCP web')")
	s.holds("the address has the search", "location.hash === '#?queue-0044'")
	s.press(kb.Escape, kb.Escape)
	s.holds("no mark is left", "!document.querySelector('#rows mark')")
	other, without := nameOf(idle)
	s.endpoints(idle, other, without, 0)
	s.press("1")
	s.holds("the overview counts it", text("#tiles [data-state=no-endpoints] b")+" === '1'")
	s.holds("and all", fmt.Sprintf("%s === '%d'", text("#tiles [data-state=all] b"), services))
	s.click("#tiles [data-state=no-endpoints]")
	s.holds("the number leads to it", text("#matches")+fmt.Sprintf(" === '1 of %d' && ", services)+text("#rows")+fmt.Sprintf(".includes(%q)", without))
	s.press("1")
	s.click("#tiles [data-state=no-endpoints]") // the same address again
	s.holds("a second time", "!document.querySelector('#services').hidden")
	s.press(kb.Escape, "3")
	s.holds("it is a problem", text("#idle")+fmt.Sprintf(".includes(%q)", without))
	s.press("2")
}

// click clicks as a script does, wherever the element is.
func (s *stand) click(selector string) {
	s.Helper()
	s.holds(selector, fmt.Sprintf("(document.querySelector(%q)?.click(), true)", selector))
}

// traffic makes connections to a Service and to one without endpoints, and finds them on the page.
func traffic(s *stand) {
	namespace, name := nameOf(busy)
	s.press("/", namespace+"/"+name)
	s.endpoints(busy, namespace, name, 3)
	s.holds("three endpoints", text(row(namespace+"/"+name)+" > :nth-child(4)")+" === '3 (2)'")
	s.press(kb.Escape, kb.Escape)
	server, err := net.Listen("tcp", ":8080")
	if err != nil {
		s.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }()
		}
	}()
	for range 30 {
		conn, err := net.DialTimeout("tcp", clusterIP(busy)+":80", 5*time.Second)
		if err != nil {
			s.Fatal(err)
		}
		defer conn.Close()
	}
	for range 5 {
		if conn, err := net.DialTimeout("tcp", clusterIP(idle)+":80", 200*time.Millisecond); err == nil {
			conn.Close()
			s.Fatal("a Service without endpoints accepts a connection")
		}
	}
	s.press("/", namespace+"/"+name, kb.Enter)
	detail := text("#detail")
	s.holds("connections over time", "[...document.querySelectorAll('#detail .chart')].some((c) => c.innerText.includes('New connections') && !c.innerText.includes('max. 0'))")
	s.holds("the share of each endpoint", "[...document.querySelectorAll('#detail .share')].filter((e) => parseInt(e.innerText) > 0).length >= 2")
	s.holds("the client", detail+".includes('TOP CLIENTS') && "+detail+fmt.Sprintf(".includes(%q)", clientAddress))
	s.holds("open connections", "[...document.querySelectorAll('#detail tr')].filter((r) => r.innerText.includes('ESTABLISHED')).length >= 20")
	s.picture("ui-service")
	s.holds("the panel is updated while the form has the focus", "(document.querySelector('#detail input[name=from]').focus(), true)")
	s.endpoints(busy, namespace, name, 4)
	s.holds("a new endpoint", detail+".includes('10.244.44.4:8080') && document.activeElement?.name === 'from'")
	s.press(kb.Escape, kb.Escape, kb.Escape)

	s.press("1")
	s.holds("the busiest Service", text("#traffic")+fmt.Sprintf(".includes('%s/%s')", namespace, name))
	s.holds("refusals", "[...document.querySelectorAll('#traffic .chart.bad')].some((c) => c.innerText.includes('Refused'))")
	other, without := nameOf(idle)
	s.holds("most refusals", fmt.Sprintf("[...document.querySelectorAll('#traffic .card')].some((c) => c.innerText.includes('MOST REFUSALS') && c.innerText.includes('%s/%s'))", other, without))
	s.notCounted(namespace, name)
}

// notCounted leaves out what a mode does not count, with a note.
func (s *stand) notCounted(namespace, name string) {
	s.holds("nothing is counted", `(window.fetchFromProxy = window.fetch, window.fetch = (to, how) => /\/(top|history)/.test(to)
	  ? Promise.resolve(new Response('{"error": "mode x: traffic is not counted"}', {status: 404})) : window.fetchFromProxy(to, how), true)`)
	s.press("/", namespace+"/"+name, kb.Enter)
	s.holds("a note", text("#detail")+".includes('traffic is not counted')")
	s.holds("and no more", "!document.querySelector('#detail .chart, #detail .share') && "+text("#detail")+".includes('OPEN CONNECTIONS')")
	s.press(kb.Escape, kb.Escape)
	s.holds("the proxy is silent", "(window.fetch = () => Promise.reject(new Error('silent')), true)")
	s.holds("the page is gray", text("#health")+" === 'no answer' && document.querySelector('#health').className === 'badge dim' && getComputedStyle(document.querySelector('main')).filter !== 'none'")
	s.holds("it answers again", "(window.fetch = window.fetchFromProxy, true)")
	s.holds("the page is current", text("#health")+" !== 'no answer' && "+text("#fresh")+" === ''")
}

// overview shows what the proxy does, and who changed its rules.
func overview(s *stand) {
	if out, err := exec.Command("nft", "flush", "chain", "ip", "kube-proxy", "services").CombinedOutput(); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	s.press("1")
	activity := text("#activity")
	s.holds("the last repair and its cause", activity+".includes('changed by nft (process ')")
	for _, part := range []string{"p50 ", "From receipt to kernel", "in the queue", "Lag of endpoint changes: p50", "Every domain was audited", nodeName, "nftables mode"} {
		s.holds(part, fmt.Sprintf("%s.includes(%q)", activity, part))
	}
	s.holds("changes of the last minutes", "[...document.querySelectorAll('[data-card=changes] .chart')].some((c) => !c.innerText.includes('max. 0'))")
	s.holds("the last card ends its row", "[...document.querySelectorAll('#activity .card')].at(-1).getBoundingClientRect().right >= document.querySelector('#activity').getBoundingClientRect().right - 1")
	s.picture("ui-overview")
}

// narrow is a phone: nothing is off the screen.
func narrow(s *stand) {
	const width = 400
	s.resize(width, 850)
	namespace, name := nameOf(busy)
	off := fmt.Sprintf(`[...document.querySelectorAll('body *')].filter((e) => {
	  const at = e.getBoundingClientRect(), cell = e.closest('.row > *, .badge, h1');
	  return at.width && (!cell || cell === e) && !e.closest('svg') && (at.right > %d.5 || at.left < -0.5);
	})`, width)
	fits := func(what, picture string) {
		s.Helper()
		s.holds(what+" is as wide as the screen", fmt.Sprintf("document.documentElement.scrollWidth <= %d && [...document.querySelectorAll('main > :not([hidden])')].every((e) => e.scrollWidth <= e.clientWidth + 1)", width))
		if found := value[string](s, off+".slice(0, 5).map((e) => `${e.tagName} ${e.id} ${e.className} ${e.innerText}`.slice(0, 200)).join('\\n')"); found != "" {
			s.Errorf("%s: off the screen:\n%s", what, found)
		}
		if picture != "" {
			s.picture(picture)
		}
	}
	s.press("1")
	fits("the overview", "ui-narrow")
	s.holds("the node is in sight as a whole", "((h) => h.innerText === '"+nodeName+"' && h.scrollWidth <= h.clientWidth)(document.querySelector('h1'))")
	s.press("2")
	s.holds("rows have two lines", "document.querySelector('#rows').offsetHeight >= 46 * 9000 && document.querySelector('#rows .row').offsetHeight === 46")
	fits("the list", "")
	s.press("/", clusterIP(busy))
	s.holds("what is found is in sight", "document.querySelector('#rows mark').getBoundingClientRect().width > 20")
	s.press(kb.Escape, kb.Escape, "3")
	fits("the problems", "")
	s.press("/", namespace+"/"+name, kb.Enter)
	s.holds("a timeline that can be read", "document.querySelector('#detail .steps')?.getBoundingClientRect().width >= 250")
	s.holds("it has headings", "getComputedStyle(document.querySelector('#detail td[data-heading=Kind]'), '::before').content !== 'none'")
	s.holds("the timeline is in sight", "(document.querySelector('#detail .legend').previousElementSibling.scrollIntoView(), true)")
	fits("the Service", "ui-narrow-service")
	s.press(kb.Escape, kb.Escape, kb.Escape)
	s.resize(1280, 800)
}

// resize gives the window a size.
func (s *stand) resize(width, height int64) {
	s.Helper()
	size := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1}
	if _, err := chromedp.Call(s.browser, emulation.SetDeviceMetricsOverride, size); err != nil {
		s.Fatal(err)
	}
}
