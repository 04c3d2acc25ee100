// Saves every open document that has changes; what cannot be saved in time counts as failed.

const ordered = new WeakSet();

export async function saveAll(app, documents, limitMs) {
  const changed = contexts(app, documents).filter((context) => context.model.dirty);
  const outcomes = await Promise.all(changed.map((context) => saved(context, limitMs)));
  const good = outcomes.filter((outcome) => outcome).length;
  return { saved: good, failed: outcomes.length - good };
}

export function contexts(app, documents) {
  const found = new Set();
  for (const area of ['main', 'left', 'right', 'down']) {
    for (const widget of widgets(app, area)) {
      const context = documents.contextForWidget(widget);
      if (context) {
        found.add(context);
      }
    }
  }
  return [...found];
}

// Notebook has fewer areas than JupyterLab and throws at others.
function widgets(app, area) {
  try {
    return [...app.shell.widgets(area)];
  } catch (error) {
    return [];
  }
}

// JupyterLab does not order the saves of a document: one that begins while another ends takes that one's file
// for somebody else's and asks whether to overwrite it. Whoever saves, the second waits for the first.
export function inTurn(context) {
  if (!ordered.has(context)) {
    ordered.add(context);
    const save = context.save.bind(context);
    let last = Promise.resolve();
    context.save = () => {
      last = last.catch(() => undefined).then(save);
      return last;
    };
  }
}

// JupyterLab tells the person itself why a document could not be saved; here only whether it was counts.
async function saved(context, limitMs) {
  const late = new Promise((resolve) => setTimeout(resolve, limitMs, false));
  try {
    return await Promise.race([context.save().then(() => true), late]);
  } catch (error) {
    console.warn(`Allotment: ${context.path} was not saved`, error);
    return false;
  }
}
