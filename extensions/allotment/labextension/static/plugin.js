// Allotment's part of JupyterLab and Notebook: wires messages, saving and the status bar together.
import { Keeper } from './keeping.js';
import { Messages } from './messages.js';
import { saveAll } from './saving.js';
import { StatusItem } from './status.js';
import { follow } from './wire.js';

const AGAIN_MS = 60000;

export function plugin({ apputils, docmanager, services, statusbar, widgets }) {
  return {
    id: 'allotment-lab:session',
    description: 'Messages of Allotment, saving before a stop, and what this session is.',
    autoStart: true,
    requires: [docmanager.IDocumentManager],
    optional: statusbar ? [statusbar.IStatusBar] : [],
    activate: (app, documents, bar) => {
      void start({ app, documents, bar, apputils, services, widgets });
    },
  };
}

async function start({ app, documents, bar, apputils, services, widgets }) {
  const settings = services.ServerConnection.makeSettings();
  const session = await read(services.ServerConnection, settings);
  if (session === null) {
    return; // no session of Allotment's
  }
  const save = (limitMs) => saveAll(app, documents, limitMs);
  const item = bar && widgets ? new StatusItem(widgets.Widget, session) : null;
  if (item !== null) {
    bar.registerStatusItem('allotment-lab:session', { item: item.widget, align: 'right', rank: 1 });
  }
  const messages = new Messages({
    apputils,
    lease: session.lease,
    save,
    announced: (at) => item && item.announce(at),
    tidy: (choice) => tidy(services.ServerConnection, settings, choice),
  });
  messages.room(session);
  const connected = follow(settings, (message, answer) => messages.heard(message, answer));
  new Keeper({ app, documents, connected }).start();
  setInterval(async () => {
    const fresh = document.hidden ? null : await read(services.ServerConnection, settings);
    if (fresh !== null) {
      item && item.show(fresh);
      messages.room(fresh);
    }
  }, AGAIN_MS);
}

// The session's document; null where this server is none of Allotment's, or does not answer.
async function read(connection, settings) {
  try {
    const answer = await connection.makeRequest(`${settings.baseUrl}allotment/session`, {}, settings);
    return answer.ok ? await answer.json() : null;
  } catch (error) {
    return null;
  }
}

// What became of packages that do not work, in a sentence.
async function tidy(connection, settings, choice) {
  const url = `${settings.baseUrl}allotment/packages`;
  try {
    const answer = await connection.makeRequest(url, { method: 'POST', body: JSON.stringify({ choice }) }, settings);
    if (answer.ok) {
      return (await answer.json()).sentence;
    }
  } catch (error) {
    console.warn('Allotment: packages', error);
  }
  return 'The notebook server did not answer. In a terminal: allot env check';
}
