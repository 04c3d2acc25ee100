// One item of the status bar: which size, for how long, and a way to Allotment's page.
import { clock, size, span } from './words.js';

const STYLE = `
.allot-status { display: flex; align-items: center; height: 100%; padding: 0 6px; gap: 4px;
  color: var(--jp-ui-font-color1); font-size: var(--jp-ui-font-size1); text-decoration: none;
  white-space: nowrap; }
.allot-status:hover, .allot-status:focus-visible { background: var(--jp-layout-color3);
  text-decoration: underline; }
.allot-status[data-ends], .allot-status[data-ends]:hover, .allot-status[data-ends]:focus-visible {
  color: var(--jp-ui-inverse-font-color1, #fff);
  background: var(--jp-error-color0, #b71c1c); }
`;

export class StatusItem {
  constructor(Widget, session) {
    style();
    this.widget = new Widget();
    this._link = document.createElement('a');
    this._link.className = 'allot-status';
    this._link.target = '_blank';
    this._link.rel = 'noopener';
    this.widget.node.append(this._link);
    this.widget.addClass('allot-status-item');
    this._ends = null;
    this.show(session);
    setInterval(() => this._draw(), 15000);
  }

  show(session) {
    this._session = session;
    this._link.href = session.dashboard;
    this._draw();
  }

  // When the session ends, or null.
  announce(at) {
    this._ends = at;
    this._draw();
  }

  _draw() {
    const { flavor_title: flavor, since } = this._session;
    const now = Date.now();
    const running = since ? span(now - new Date(since)) : null;
    const ends = this._ends ? `stops in ${span(this._ends - now)}` : null;
    const full = fullness(this._session.home);
    this._link.textContent = [flavor, running, full, ends].filter(Boolean).join(' · ');
    this._link.title = this._more();
    this._link.setAttribute('aria-label', `Allotment: ${this._more()} Opens Allotment's page.`);
    this._link.toggleAttribute('data-ends', Boolean(ends));
  }

  _more() {
    const told = this._session;
    const home = told.home || {};
    const limit = home.limit_bytes ? ` of ${size(home.limit_bytes)}` : '';
    return [
      `${told.flavor_title}${told.simulated ? ' (simulated)' : ''} in ${told.environment}.`,
      told.since ? `Runs since ${clock(new Date(told.since))}.` : '',
      told.price_per_hour ? `${told.price_per_hour} ${told.currency || ''} per hour.` : '',
      home.used_bytes !== null && home.used_bytes !== undefined
        ? `Home: ${size(home.used_bytes)}${limit} used.`
        : '',
      home.warning || '',
      this._ends ? `Stops at ${clock(this._ends)}.` : '',
    ]
      .filter(Boolean)
      .join(' ');
  }
}

// Said in the bar only where it is a reason to act.
function fullness(home) {
  if (!home || !home.warning) {
    return null;
  }
  const known = home.limit_bytes && home.used_bytes !== null;
  return known ? `home ${Math.round((100 * home.used_bytes) / home.limit_bytes)} % full` : 'home is full';
}

function style() {
  if (!document.getElementById('allot-status-style')) {
    const made = document.createElement('style');
    made.id = 'allot-status-style';
    made.textContent = STYLE;
    document.head.append(made);
  }
}
