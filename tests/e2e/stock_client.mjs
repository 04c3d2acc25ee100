// The stock JupyterLab client against a hub: start a server, run one cell, print what it printed.
// usage: node stock_client.mjs HUB_URL USER FLAVOR CODE; the password comes in the variable PASSWORD.
// As VS Code does it: a token for the password, a server, its kernels, a WebSocket with a header.

import services from '@jupyterlab/services';
import WebSocket from 'ws';

const { KernelManager, ServerConnection } = services;
const [hub, user, flavor, code] = process.argv.slice(2);
const limit = Date.now() + 120_000;

async function ask(token, method, path, body) {
  const answer = await fetch(`${hub}/hub/api${path}`, {
    method,
    headers: { 'Content-Type': 'application/json', ...(token && { Authorization: `token ${token}` }) },
    body: body === undefined ? undefined : JSON.stringify(body)
  });
  if (!answer.ok) {
    throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  }
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

async function signIn() {
  const auth = { username: user, password: process.env.PASSWORD };
  const made = await ask(null, 'POST', `/users/${user}/tokens`, { auth, note: 'stock client' });
  return made.token;
}

async function startServer(token) {
  const options = { user_options: { environment: 'minimal', flavor } };
  await ask(token, 'POST', `/users/${user}/server`, options);
  for (;;) {
    const model = await ask(token, 'GET', `/users/${user}`);
    if (model.servers['']?.ready) {
      return model.servers[''].url;
    }
    if (Date.now() > limit) {
      throw new Error('the server was not ready in time');
    }
    await new Promise(done => setTimeout(done, 200));
  }
}

async function runCell(token, serverUrl) {
  const baseUrl = `${hub}${serverUrl}`;
  const serverSettings = ServerConnection.makeSettings({
    baseUrl,
    wsUrl: baseUrl.replace(/^http/, 'ws'),
    token,
    // The hub ignores ?token= on WebSockets of clients that are no browsers: it goes in the header.
    appendToken: false,
    fetch,
    WebSocket: class extends WebSocket {
      constructor(url, protocols) {
        super(url, protocols, { headers: { Authorization: `token ${token}` } });
      }
    }
  });
  const manager = new KernelManager({ serverSettings });
  await manager.ready;
  const kernel = await manager.startNew({ name: 'python3' });
  const future = kernel.requestExecute({ code });
  let text = '';
  future.onIOPub = message => {
    if (message.header.msg_type === 'stream') {
      text += message.content.text;
    } else if (message.header.msg_type === 'error') {
      throw new Error(message.content.evalue);
    }
  };
  await future.done;
  await kernel.shutdown();
  return text;
}

try {
  // The client writes to the console itself: what the cell printed is the last line.
  const token = await signIn();
  process.stdout.write(`\n${await runCell(token, await startServer(token))}`);
  process.exit(0);
} catch (error) {
  process.stderr.write(`${error.stack ?? error}\n`);
  process.exit(1);
}
