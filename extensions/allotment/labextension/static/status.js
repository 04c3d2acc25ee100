// One item of the status bar: which size, for how long, and a way to Allotment's page.
import { clock, exact, money, size, span } from './words.js';

const SOON_MS = 30 * 60000;
const STYLE = `
.allot-status { display: flex; align-items: center; height: 100%; padding: 0 6px; gap: 4px;
  color: var(--jp-ui-font-color1); font-size: var(--jp-ui-font-size1); text-decoration: none;
  white-space: nowrap; }
.allot-status:hover, .allot-status:focus-visible { background: var(--jp-layout-color3);
  text-decoration: underline; }
.allot-status[data-low] { box-shadow: inset 0 -3px 0 var(--jp-warn-color1, #f57c00); }
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
    const minutes = this._ends - now < 60000 ? 'less than a minute' : span(this._ends - now);
    const ends = this._ends ? `stops in ${minutes}` : null;
    const full = fullness(this._session.home);
    const spent = cost(this._session);
    const left = purse(this._session);
    this._link.textContent = [flavor, running, spent, left, full, ends].filter(Boolean).join(' · ');
    this._link.title = this._more();
    this._link.setAttribute('aria-label', `Allotment: ${this._more()} Opens Allotment's page.`);
    // a session that may run for hours knows its end from the beginning: no alarm yet
    this._link.toggleAttribute('data-ends', Boolean(ends) && this._ends - now < SOON_MS);
    this._link.toggleAttribute('data-low', low(this._session.budget));
  }

  _more() {
    const told = this._session;
    const home = told.home || {};
    const limit = home.limit_bytes ? ` of ${size(home.limit_bytes)}` : '';
    return [
      `${told.flavor_title}${told.simulated ? ' (simulated)' : ''} in ${told.environment}.`,
      told.since ? `Runs since ${clock(new Date(told.since))}.` : '',
      told.price_per_hour ? `${exact(told.price_per_hour)} ${told.currency || ''} per hour.` : '',
      told.cost !== null && told.cost !== undefined ? `So far ${exact(told.cost)} ${told.currency || ''}.` : '',
      told.charged_to ? `${told.charged_to} pays.` : '',
      budget(told),
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

// What it cost so far; nothing where that is unknown, or where sessions cost nothing.
function cost({ cost: spent, currency, price_per_hour: price }) {
  const known = spent !== null && spent !== undefined;
  return known && (Number(spent) > 0 || Number(price) > 0) ? money(spent, currency || '') : null;
}

function purse(told) {
  return told.budget ? `${leftOf(told)} left` : null;
}

function leftOf({ budget: { left, unit }, currency }) {
  return money(Math.max(Number(left), 0), unit === 'money' ? currency || '' : 'GPU hours', Math.floor);
}

function budget(told) {
  if (!told.budget) {
    return '';
  }
  const { title, limit, hard, until, unit } = told.budget;
  const of = `${Number(limit).toFixed(2)} ${unit === 'money' ? told.currency || '' : 'GPU hours'}`.trim();
  const whole = `Left of ${title}: ${leftOf(told)} of ${of}`;
  const then = hard ? 'when it is used up, this session ends' : 'you are warned, but nothing stops';
  return `${whole}${until ? ` until ${clock(new Date(until))}` : ''}; ${then}.`;
}

// Less than a fifth.
function low(found) {
  return Boolean(found) && Number(found.left) < Number(found.limit) / 5;
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
