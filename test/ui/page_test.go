// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const (
	services = 10_000
	patience = time.Minute
)

// do carries actions out, within a time.
func (s *stand) do(actions ...chromedp.Action[chromedp.Void]) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.browser, 2*time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		s.Fatal(err)
	}
}

// value evaluates an expression of the page, as the developer's tools do.
func value[T any](s *stand, expression string) T {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.browser, 2*time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		s.Fatalf("%s: %v", expression, err)
	}
	return v
}

// holds waits until an expression is true. (What the library offers for this makes code from a
// text, which the page's policy forbids.)
func (s *stand) holds(what, expression string) {
	s.Helper()
	for end := time.Now().Add(patience); !value[bool](s, "Boolean("+expression+")"); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("%s: %s is not true; the page shows\n%s", what, expression, value[string](s, "`search: ${document.querySelector('#search').value}\\n` + document.body.innerText.slice(0, 3000)"))
		}
	}
}

// press presses keys one by one, and types longer texts. A key that the page handles must not be
// typed as well, so the browser is told of both at once.
func (s *stand) press(keys ...string) {
	s.Helper()
	for _, key := range keys {
		if len(key) > 1 || key < " " {
			s.do(chromedp.KeyEvent(key))
			continue
		}
		for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
			params := input.DispatchKeyEventParams{Type: kind, Key: key}
			if kind == input.DispatchKeyEventTypeKeyDown {
				params.Text = key
			}
			if _, err := chromedp.Call(s.browser, input.DispatchKeyEvent, params); err != nil {
				s.Fatal(err)
			}
		}
	}
}

// text is an expression for what an element shows.
func text(selector string) string {
	return fmt.Sprintf("(document.querySelector(%q)?.innerText ?? '')", selector)
}

func row(key string) string { return fmt.Sprintf(`#rows .row[data-key="%s"]`, key) }

// picture takes a screenshot for the documentation, if it is wanted.
func (s *stand) picture(name string) {
	s.Helper()
	dir := os.Getenv("SLUICE_UI_IMAGES")
	if dir == "" {
		return
	}
	image, err := chromedp.Run(s.browser, chromedp.CaptureScreenshot())
	if err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), image, 0o644); err != nil {
		s.Fatal(err)
	}
}

// TestPage opens the page once, with 10,000 Services, and does what an operator does.
func TestPage(t *testing.T) {
	s := newStand(t, services)
	s.listen()
	s.resize(1280, 800)
	s.do(chromedp.Navigate(page))
	s.holds("all Services are there", fmt.Sprintf("%s === '%d'", text("#count"), services))
	s.holds("all are applied", fmt.Sprintf("%s === '%d'", text("#tiles [data-state=applied] b"), services))
	for _, step := range []struct {
		name string
		run  func(*stand)
	}{
		{"search", searching}, {"keyboard", keyboard}, {"open", opening}, {"link", linked}, {"change", changing}, {"hostile names", hostile},
		{"quarantine", quarantine}, {"domains", domains}, {"scroll", scrolling}, {"filters", filtering}, {"traffic", traffic}, {"dark", dark},
		{"narrow", narrow}, {"lost and found", deleting}, {"overview", overview},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			began := time.Now()
			step.run(&stand{T: t, api: s.api, browser: s.browser, complaints: s.complaints})
			t.Logf("%v", time.Since(began).Round(time.Millisecond))
		}) {
			break
		}
	}
	for _, c := range s.complaints.take() {
		t.Errorf("the browser complains: %s", c)
	}
}

// complaints are what the browser finds wrong with the page: exceptions, and log entries such as
// those about breaches of the content security policy.
type complaints struct {
	mu  sync.Mutex
	all []string
}

func (c *complaints) add(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, text)
}

func (c *complaints) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	return all
}

func (s *stand) listen() {
	err := chromedp.Listen(s.browser, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			s.complaints.add(fmt.Sprintf("%+v", e.ExceptionDetails))
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError {
				s.complaints.add(e.Entry.Text + " " + e.Entry.URL)
			}
		}
	})
	if err == nil {
		_, err = chromedp.Call(s.browser, log.Enable, cdp.Empty{})
	}
	if err != nil {
		s.Fatal(err)
	}
}

// searching finds Services by words, and the slash leads to the search.
func searching(s *stand) {
	s.press("/")
	s.holds("the search has the focus", "document.activeElement.id === 'search'")
	s.press("payments queue-0044")
	s.holds("one Service is left", text("#matches")+" === '1 of 10000'")
	s.holds("it is the one", text(row("payments/queue-0044"))+".includes('10.96.1.45')")
	s.press(kb.Escape, kb.Escape)
	s.holds("the search is clear", text("#matches")+" === ''")
	s.press("/", clusterIP(777)) // by address
	s.holds("found by its address", "document.querySelectorAll('#rows .row').length >= 1 && "+text("#rows")+".includes('-0777')")
	s.press(kb.Escape, kb.Escape)
	s.picture("ui-services")
}

// keyboard moves without a mouse.
func keyboard(s *stand) {
	at := "document.querySelector('#rows .row[aria-selected=true]')?.dataset.at"
	s.press("g")
	s.holds("the first", at+" === '0'")
	s.press("j", "j", "j", "k")
	s.holds("the third", at+" === '2'")
	s.press("G")
	s.holds("the last", fmt.Sprintf("%s === '%d'", at, services-1))
	s.press("g", "?")
	s.holds("help", "document.querySelector('#help').open")
	s.press(kb.Escape)
	s.holds("no help", "!document.querySelector('#help').open")
	s.press("3")
	s.holds("problems", "!document.querySelector('#problems').hidden")
	s.press("1")
	s.holds("overview", "!document.querySelector('#overview').hidden")
	s.press("2")
	s.holds("services", "!document.querySelector('#services').hidden")
}

// opening opens one Service with its endpoints and its timeline.
func opening(s *stand) {
	s.press("/", "payments/queue-0044", kb.Enter)
	detail := text("#detail")
	s.holds("the Service opens", detail+".includes('payments/queue-0044')")
	for _, part := range []string{"10.96.1.45", "nftables/IPv4", "TIMELINE", "10.244.44.1:8080", "node-1 (here)", "FRONTENDS"} {
		s.holds(part, fmt.Sprintf("%s.includes(%q)", detail, part))
	}
	s.holds("a change in the timeline", "document.querySelectorAll('#detail .steps').length >= 1")
	s.do(chromedp.SendKeys(chromedp.CSS("#detail input[name=from]"), "10.244.9.9"), chromedp.Click(chromedp.CSS("#detail form.explain button")))
	s.holds("a connection is explained", text("#explained")+".includes('10.244.44.1:8080') && "+text("#explained")+".includes('100.0 %')")
	s.press(kb.Escape)
	s.holds("the Service closes", "document.querySelector('#detail').hidden")
	s.press(kb.Escape)
}

// linked opens a link to a Service. The panel makes rows higher, and the row of the Service stays in sight.
func linked(s *stand) {
	const key = "payments/ledger-7844"
	s.resize(1400, 900)
	s.do(chromedp.Navigate("about:blank"), chromedp.Navigate(page+"#/"+key))
	s.holds("the Service opens", text("#detail")+".includes('"+key+"') && "+text("#detail")+".includes('TIMELINE')")
	type place struct{ Top, Bottom, First, Last float64 }
	at := value[*place](s, fmt.Sprintf(`new Promise((done) => setTimeout(() => {
	  const box = document.querySelector('#list').getBoundingClientRect();
	  const row = document.querySelector(%q)?.getBoundingClientRect();
	  done(row ? {Top: row.top, Bottom: row.bottom, First: box.top, Last: box.bottom} : null);
	}, 500))`, row(key)+"[aria-selected=true]"))
	if at == nil || at.Top < at.First-1 || at.Bottom > at.Last+1 {
		s.Errorf("the row of the open Service is at %+v", at)
	}
	s.resize(1280, 800)
	s.press(kb.Escape, kb.Escape)
}

// changing sees a change without a reload, in the list and in the open Service.
func changing(s *stand) {
	s.press("/", "payments/queue-0044", kb.Enter)
	s.holds("one endpoint", text(row("payments/queue-0044")+" > :nth-child(4)")+" === '1 (1)'")
	namespace, name := nameOf(44)
	began := time.Now()
	s.endpoints(44, namespace, name, 3)
	s.holds("three endpoints", text(row("payments/queue-0044")+" > :nth-child(4)")+" === '3 (2)'")
	s.Logf("a change was on the page after %v", time.Since(began).Round(time.Millisecond))
	s.holds("the new endpoint, too", text("#detail")+".includes('10.244.44.3:8080')")
	s.holds("in the timeline", text("#detail")+".includes('endpoints')")
	s.press(kb.Escape, kb.Escape)
}

// hostile texts stay texts: the kernel's words and an API object's may hold anything.
func hostile(s *stand) {
	s.holds("nothing was injected", `(() => {
	  const words = '<img src=x onerror="window.injected=1">';
	  const box = document.querySelector('#fresh');
	  box.textContent = words;
	  return box.children.length === 0 && window.injected === undefined;
	})()`)
	s.do(chromedp.Evaluate[chromedp.Void](`location.hash = "#/%3Cimg%20src=x%20onerror=window.injected=1%3E/x"`))
	s.holds("an unknown Service is said", text("#detail")+".includes('<img src=x onerror=window.injected=1>/x')")
	s.holds("and no more", "window.injected === undefined && !document.querySelector('#detail img')")
	s.holds("no inline script runs", `(() => {
	  const made = document.createElement('script');
	  made.textContent = 'window.inline = 1';
	  document.body.append(made);
	  made.remove();
	  return window.inline === undefined;
	})()`)
	s.press(kb.Escape)
	said := strings.Join(s.complaints.take(), "\n")
	if !strings.Contains(said, "Content Security Policy") {
		s.Errorf("the browser did not say that it rejected the script: %s", said)
	}
}

// quarantine shows the Service that the node cannot serve, with the reason.
func quarantine(s *stand) {
	namespace, name := nameOf(7)
	s.service(7, namespace, name, heldPort)
	key := namespace + "/" + name
	s.press("/", key)
	s.holds("the list says it", text(row(key))+".includes('held (rejected)')")
	s.holds("the tab says it", "Number("+text("#problem-count")+") >= 1")
	s.holds("the badge, too", text("#health")+".startsWith('degraded') && document.querySelector('#health').classList.contains('wait')")
	s.press(kb.Escape, "3")
	s.holds("with the reason", text("#quarantine")+".includes('"+key+"') && "+text("#quarantine")+".includes('port 30080 on 127.0.0.1 is held by')")
	s.picture("ui-problems")
	s.do(chromedp.Click(chromedp.CSS("#quarantine a")))
	s.holds("the link opens it", text("#detail")+".includes('is held')")
	s.press(kb.Escape, kb.Escape)
	s.service(7, namespace, name, 0)
	s.holds("it recovers", text("#problem-count")+" === ''")
}

// domains shows the domains, whose batches are counted.
func domains(s *stand) {
	s.press("1")
	s.holds("the domains", text("#domains")+".includes('nftables/IPv4') && "+text("#domains")+".includes('applied')")
	batches := `Number([...document.querySelectorAll('[data-domain="nftables/IPv4"] .fact')].find((f) => f.innerText.endsWith('batches')).querySelector('b').innerText)`
	before := value[int](s, batches)
	for n := range 200 {
		namespace, name := nameOf(n)
		s.endpoints(n, namespace, name, 4)
	}
	s.holds("batches are counted", fmt.Sprintf("%s > %d", batches, before))
	s.press("2")
}

// scrolling through 10,000 Services keeps the document small and each frame short.
func scrolling(s *stand) {
	s.holds("all are listed", "document.querySelector('#rows').offsetHeight >= 28 * 10000")
	type result struct {
		Most   int     `json:"most"`
		Nodes  int     `json:"nodes"`
		Frame  float64 `json:"frame"`
		Median float64 `json:"median"`
		Blank  int     `json:"blank"`
	}
	got := value[result](s, `new Promise((done) => {
	  const box = document.querySelector('#list'), rows = document.querySelector('#rows'), steps = 120, frames = [];
	  let at = 0, most = 0, nodes = 0, blank = 0, before = performance.now();
	  const next = () => {
	    const now = performance.now();
	    frames.push(now - before);
	    before = now;
	    most = Math.max(most, rows.children.length);
	    nodes = Math.max(nodes, document.querySelectorAll('*').length);
	    if (at > 1) { // what was scrolled to two frames ago is drawn
	      const middle = box.getBoundingClientRect();
	      if (!document.elementFromPoint(middle.x + 40, middle.y + middle.height / 2)?.closest('.row')) blank++;
	    }
	    if (at++ === steps) { frames.sort((a, b) => a - b); done({most, nodes, blank, frame: frames.at(-1), median: frames[steps >> 1]}); return; }
	    box.scrollTop = (rows.offsetHeight - box.clientHeight) * at / steps;
	    requestAnimationFrame(() => requestAnimationFrame(next));
	  };
	  next();
	})`)
	s.Logf("%+v", got)
	if got.Most > 60 || got.Nodes > 1200 || got.Blank > 0 {
		s.Errorf("%+v: too much in the document, or a part was not drawn", got)
	}
	s.holds("the end", text("#rows")+".includes('web/')")
	sorted := value[float64](s, `(() => {
	  const before = performance.now();
	  document.querySelector('#columns button[data-by=latency]').click();
	  return performance.now() - before;
	})()`)
	s.Logf("sorting took %.0f ms", sorted)
	if sorted > 5000 { // with room for a busy machine
		s.Errorf("sorting took %.0f ms", sorted)
	}
	s.do(chromedp.Click(chromedp.CSS(`#columns button[data-by=key]`)))
	s.press("g")
}

// dark is dark when the system is, and when it is asked for.
func dark(s *stand) {
	scheme := func(want string) {
		_, err := chromedp.Call(s.browser, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: want}},
		})
		if err != nil {
			s.Fatal(err)
		}
	}
	lightness := "Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"
	scheme("light")
	s.holds("light", lightness+" > 200")
	scheme("dark")
	s.holds("dark", lightness+" < 60")
	s.press("/", "queue-00", kb.Enter)
	s.holds("open", text("#detail")+".includes('TIMELINE')")
	s.picture("ui-dark")
	s.press(kb.Escape, kb.Escape, "t")
	s.holds("light though the system is dark", lightness+" > 200")
	s.press("t")
	s.holds("dark by choice", "document.documentElement.dataset.theme === 'dark' && "+lightness+" < 60")
	s.press("t")
	scheme("light")
}

// deleting removes a Service from the list.
func deleting(s *stand) {
	namespace, name := nameOf(44)
	s.api.Remove("services", namespace, name)
	s.holds("it goes", fmt.Sprintf("%s === '%d'", text("#count"), services-1))
}
