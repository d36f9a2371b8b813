//go:build browser

package console

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// operations are the pages of sagas, queues, what happens now and nodes, with what is seen when they are complete.
var operations = []struct{ name, address, ready string }{
	{"sagas", "#/sagas", `document.querySelectorAll(".rows tbody tr").length === 3`},
	{"saga", "#/saga?key=default%2Ftrip%2Fb-2", `document.querySelector("[data-step='seat.undo'] .try")`},
	{"queues", "#/queues?namespace=default&action=charge", `document.querySelectorAll(".lane li").length === 3`},
	{"live", "#/live", `document.querySelectorAll(".chart canvas").length === 4 && document.querySelector(".feed a")`},
	{"admin", "#/admin", `document.querySelectorAll("section").length === 3`},
	{"cluster", "#/cluster", `document.querySelector(".facts .state")`},
}

func TestOperations_AreAccessibleAndFit(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	agency(s)
	busyQueue(s)
	for _, look := range []struct {
		width int64
		dark  bool
	}{{1280, false}, {390, true}} {
		p := openTab(t, look.width, 844, look.dark)
		for _, page := range operations {
			p.visit("about:blank")
			p.visit(s.url + "/console/" + page.address)
			p.until(page.ready)
			require.Empty(t, violations(p), "%s at %d pixels", page.name, look.width)
			require.LessOrEqual(t, value[int64](p, `document.documentElement.scrollWidth`), look.width, "%s scrolls sideways", page.name)
		}
		p.visit(s.url + "/console/#/queues?namespace=default&action=charge")
		p.click("[data-verb=pause]")
		p.until(`document.querySelector("dialog .does")`)
		require.Empty(t, violations(p), "the dialog")
	}
}

// TestScreenshots_Operations writes the pictures of these pages.
func TestScreenshots_Operations(t *testing.T) {
	dir, s := pictureDir(t), startDev(t)
	agency(s)
	busyQueue(s)
	p := openTab(t, 1280, 800, false)
	for _, page := range operations {
		p.visit(s.url + "/console/" + page.address)
		p.until(page.ready)
		if page.name == "live" {
			for i := range 700 { // traffic, as it comes
				name, in := fmt.Sprint("m-", i), object{"to": "ann@example.com"}
				switch opened := s.open("mail", name, in, nil); i % 53 {
				case 11, 19, 20:
					s.report(opened, object{"outcome": "refused", "body": "no such address"})
				case 47:
					s.report(opened, object{"outcome": "unknown", "error": "connection lost after sending"})
				default:
					s.report(opened, object{"outcome": "succeeded", "external_id": "ch_" + name})
				}
				if i%4 == 0 {
					s.open("mail", name, in, nil)
				}
				p.do(chromedp.Evaluate(fmt.Sprintf(`new Promise((done) => setTimeout(done, %d))`, 40+i%90), nil, awaitPromise))
			}
		}
		if page.name == "queues" {
			p.until(`document.querySelector(".chart .plot").dataset.points >= 4`)
		}
		p.picture(filepath.Join(dir, "console-"+page.name+".png"))
	}
}
