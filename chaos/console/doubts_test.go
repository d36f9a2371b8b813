//go:build browser

package console

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// link is the address of a flight in a notification.
func link(s *server, namespace, key string) string {
	return s.url + "/console/#/flight?namespace=" + url.QueryEscape(namespace) + "&key=" + url.QueryEscape(key)
}

func TestDoubts_List(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	s.doubt("charge", "order-1", object{"cents": 1})
	s.doubt("mail", "case-2", object{"to": "ann@example.com"})
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/")
	p.until(`document.querySelectorAll(".item").length === 2`)
	p.sees("nav a[aria-current]", "Doubts 2")
	p.sees(".detail", "charge/order-1") // the oldest
	p.press("j")
	p.sees(".detail", "ann@example.com")
}

// The oldest doubt is shown unasked. It stays when somebody else decides it: the dialog that is open says who, and keeps what was typed.
func TestDoubts_TheOneThatIsReadStays(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	id := s.doubt("charge", "order-1", nil)
	s.doubt("charge", "order-2", nil)
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/")
	p.sees(".detail h2", "charge/order-1")
	p.press("r")
	p.click("input[value=not_happened]")
	p.fill("dialog input[name=reason]", "I think so")
	f := s.must("GET", "/v1/flights/"+id, nil)
	s.must("POST", "/v1/flights/"+id+"/resolve", object{"result": "fail", "reason": "the bank says no", "actor": "Cem"}, "If-Match", `"`+f["version"].(string)+`"`)
	p.until(`document.querySelectorAll(".item").length === 1`) // the list has learned it
	require.Equal(t, "I think so", value[string](p, `document.querySelector("dialog input[name=reason]").value`))
	p.click("dialog button.act")
	p.sees("dialog .problem", "already resolved differently: fail, by Cem")
	p.press("\x1b")
	p.sees(".detail h2", "charge/order-1")
	p.press("j")
	p.sees(".detail h2", "charge/order-2")
	p.fill(".tools input", "shop")
	p.press("\t")
	p.sees(".empty", "Nothing is in doubt")
	p.until(`!document.querySelector(".detail h2")`) // it is of another namespace
}
