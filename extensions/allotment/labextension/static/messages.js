// Allotment's messages as JupyterLab notifications; an announced end also saves what is open.
import { clock, count } from './words.js';

const SHORT = 130; // JupyterLab cuts a notification after 140 characters
const SAVE_MS = 20000;
const KEPT = 200;

export class Messages {
  constructor({ apputils, lease, save, announced, tidy }) {
    this._notification = apputils.Notification;
    this._dialog = apputils.showDialog;
    this._ok = apputils.Dialog.okButton;
    this._save = save;
    this._announced = announced;
    this._tidy = tidy;
    this._key = `allotment-lab:seen:${lease}`;
    this._shown = new Map(); // notice id -> notification id
    this._stops = new Map(); // notice id -> when the session ends
    this._said = new Set(); // warnings about room and packages, each once
  }

  async heard(message, answer) {
    if (message.type === 'notices') {
      message.list.forEach((notice) => void this._notice(notice, { again: true }));
    } else if (message.type === 'notice') {
      void this._notice(message, { again: false });
    } else if (message.type === 'withdrawn') {
      this._withdrawn(message.id);
    } else if (message.type === 'last_call') {
      await this._lastCall(message, answer);
    }
  }

  // What the home and its packages have to say; each sentence once in the life of a page.
  room(session) {
    this._warn(session.home && session.home.warning, []);
    const packages = session.packages || {};
    if (packages.state === 'broken') {
      const offered = (packages.choices || []).map((choice) => ({
        label: choice.title,
        callback: async () => this._tell(await this._tidy(choice.id), 'info'),
      }));
      this._warn([packages.sentence, packages.next_step].filter(Boolean).join(' '), offered);
    }
  }

  _warn(sentence, actions) {
    if (sentence && !this._said.has(sentence)) {
      this._said.add(sentence);
      this._tell(sentence, 'warning', actions);
    }
  }

  async _notice(notice, { again }) {
    const ends = notice.stop_at ? new Date(notice.stop_at) : null;
    const pending = ends !== null && ends > new Date();
    const seen = this._seen().includes(notice.id);
    if (this._shown.has(notice.id) || (again && (seen || (ends !== null && !pending)))) {
      return;
    }
    const when = pending ? `This session ends at ${clock(ends)}.` : '';
    const text = [notice.sentence, when, notice.next_step].filter(Boolean).join(' ');
    this._shown.set(notice.id, this._tell(text, notice.level));
    this._remember(notice.id);
    if (ends !== null) {
      this._stops.set(notice.id, ends);
      this._tellEnd();
      this._savedBefore(await this._save(SAVE_MS));
    }
  }

  _withdrawn(id) {
    const shown = this._shown.get(id);
    if (shown) {
      this._notification.dismiss(shown);
    }
    if (this._stops.delete(id)) {
      this._tellEnd();
      this._tell('The stop was called off: this session goes on.', 'info');
    }
  }

  async _lastCall(call, answer) {
    const result = await this._save(Math.max(1000 * call.wait_s - 700, 300));
    answer({ type: 'saved', id: call.id, ...result });
    this._tell(`This server is being stopped now. ${outcome(result)}`, result.failed ? 'error' : 'warning');
  }

  _savedBefore(result) {
    if (result.saved + result.failed > 0) {
      this._tell(outcome(result), result.failed ? 'error' : 'success');
    }
  }

  _tellEnd() {
    const ends = [...this._stops.values()];
    this._announced(ends.length ? new Date(Math.min(...ends)) : null);
  }

  // Stays until it is dismissed; what is too long for a notification can be read in a dialog.
  _tell(text, type, actions = []) {
    const offered = [...actions];
    if (text.length > SHORT) {
      const callback = () => void this._dialog({ title: 'Allotment', body: text, buttons: [this._ok()] });
      offered.push({ label: 'Read all', callback, displayType: 'accent' });
    }
    return this._notification.emit(text, type, {
      autoClose: type === 'success' ? 8000 : false,
      actions: offered,
    });
  }

  _seen() {
    try {
      return JSON.parse(localStorage.getItem(this._key)) || [];
    } catch (error) {
      return [];
    }
  }

  _remember(id) {
    try {
      const ids = [...this._seen().filter((one) => one !== id), id].slice(-KEPT);
      localStorage.setItem(this._key, JSON.stringify(ids));
    } catch (error) {
      // without storage a message is shown again after a reload, which is better than never
    }
  }
}

function outcome({ saved, failed }) {
  const good = saved ? `${count(saved, 'document')} saved.` : '';
  const bad = failed ? `${count(failed, 'document')} could NOT be saved.` : '';
  return `${good} ${bad}`.trim() || 'Nothing was left to save.';
}
