package console

import (
	"net/http"
	"strconv"
	"time"

	"castellan/internal/gate"
)

type switchesPage struct {
	gate.Switches
	Armed   bool
	Proof   string
	Problem string
	Hint    string
}

func (c *Console) drawSwitches(v *visit, status int, p switchesPage) {
	if c.c.Switches == nil {
		c.refuse(v, http.StatusNotFound, "There are no switches", "This installation has none that the console could turn.")
		return
	}
	var err error
	if p.Switches, err = c.c.Switches.Switches(v.ctx); err != nil {
		c.fail(v, err)
		return
	}
	p.Armed, p.Proof = c.now().Before(p.ArmedUntil), c.proof(v)
	c.draw(v, status, "switches", sheet{Title: "Switches", At: "/switches", Script: true, Body: p})
}

func (c *Console) switches(v *visit) { c.drawSwitches(v, http.StatusOK, switchesPage{}) }

func (c *Console) turned(v *visit, err error) {
	if err == nil {
		c.to(v, "/switches")
		return
	}
	e := gate.AsError(err)
	status := http.StatusForbidden
	switch {
	case waitOf(err) > 0:
		status = http.StatusTooManyRequests
	case e.Kind == gate.ErrInvalid:
		status = http.StatusBadRequest
	case e.Kind == gate.ErrUnavailable:
		status = http.StatusServiceUnavailable
	}
	c.drawSwitches(v, status, switchesPage{Problem: e.Message + ". Nothing was switched.", Hint: e.Hint})
}

// kill stops every write at once and without questions; to let them pass again takes a fresh proof.
func (c *Console) kill(v *visit) {
	if c.c.Switches == nil {
		c.drawSwitches(v, http.StatusNotFound, switchesPage{})
		return
	}
	switch v.r.PostForm.Get("to") {
	case "on":
		c.turned(v, c.c.Switches.Kill(v.ctx, v.who, true))
	case "off":
		err := error(nil)
		if !c.decides(v) {
			err = gate.Fail(gate.ErrDenied, "Ask an approver or administrator.", "you may turn the switch on, not off")
		} else if err = c.proven(v); err == nil {
			err = c.c.Switches.Kill(v.ctx, v.who, false)
		}
		c.turned(v, err)
	default:
		c.turned(v, gate.Fail(gate.ErrInvalid, "Use the buttons of the page.", "the switch is turned on or off"))
	}
}

func (c *Console) arm(v *visit) {
	if c.c.Switches == nil {
		c.drawSwitches(v, http.StatusNotFound, switchesPage{})
		return
	}
	minutes, err := strconv.Atoi(v.r.PostForm.Get("minutes"))
	switch {
	case err != nil || minutes < 0 || minutes > 24*60:
		err = gate.Fail(gate.ErrInvalid, "Give 1 to 1440, or 0 to close the window.", "the minutes cannot be taken")
	case minutes == 0: // closing only tightens
		err = c.c.Switches.Arm(v.ctx, v.who, time.Time{})
	case !c.decides(v):
		err = gate.Fail(gate.ErrDenied, "Ask an approver or administrator.", "you may not arm writes")
	default:
		if err = c.proven(v); err == nil {
			err = c.c.Switches.Arm(v.ctx, v.who, c.now().Add(time.Duration(minutes)*time.Minute))
		}
	}
	c.turned(v, err)
}
