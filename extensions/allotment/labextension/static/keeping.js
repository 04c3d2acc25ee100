// Saves what was changed every few seconds: a tab that is closed, or a stop that no page hears of, costs no
// more than the last of them. JupyterLab's own autosave comes every two minutes, and stays as it is.
import { contexts, inTurn } from './saving.js';

const EVERY_MS = 3000;
const SHARE = 5; // a slow save gets at most a fifth of the time,
const SLOWEST_MS = 30000; // but is never further away than this
const AGAIN_MS = 120000; // what failed is left to JupyterLab's autosave: it asks and explains, so not too often

export class Keeper {
  constructor({ app, documents, connected }) {
    this._app = app;
    this._documents = documents;
    this._connected = connected;
    this._next = new WeakMap(); // context -> when it may be saved again
    this._saving = new WeakSet();
  }

  start() {
    setInterval(() => this._round(Date.now()), EVERY_MS);
    document.addEventListener('visibilitychange', () => {
      if (document.hidden) {
        this._round(Infinity); // the page may never be looked at again
      }
    });
  }

  // Who turned autosave off in JupyterLab's settings wants to say when a file is written.
  _round(now) {
    if (!this._documents.autosave || !this._connected()) {
      return;
    }
    for (const context of contexts(this._app, this._documents)) {
      inTurn(context);
      const due = !this._saving.has(context) && (this._next.get(context) || 0) <= now;
      if (due && context.model.dirty && context.canSave !== false) {
        void this._keep(context);
      }
    }
  }

  async _keep(context) {
    const began = Date.now();
    const { model } = context;
    let later = false;
    const changed = () => {
      later = true;
    };
    this._saving.add(context);
    model.contentChanged.connect(changed);
    let pause = AGAIN_MS;
    try {
      await context.save();
      pause = Math.min(Math.max(EVERY_MS, SHARE * (Date.now() - began)), SLOWEST_MS);
      // JupyterLab calls a document clean after a save, also what was typed while it was on its way
      if (later && !context.isDisposed) {
        model.dirty = true;
      }
    } catch (error) {
      console.warn(`Allotment: ${context.path} was not saved`, error);
    } finally {
      model.contentChanged.disconnect(changed);
      this._saving.delete(context);
      this._next.set(context, Date.now() + pause);
    }
  }
}
