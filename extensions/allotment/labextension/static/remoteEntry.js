// What JupyterLab loads: a container of module federation, written by hand. Nothing here is compiled; the
// modules beside it are loaded by the browser itself, JupyterLab's own come out of its share scope.
'use strict';
(() => {
  const here = document.currentScript.src;
  let scope = null;

  // The module that JupyterLab itself uses: its tokens are compared by identity.
  const take = async (name) => {
    const versions = Object.values((scope && scope[name]) || {});
    const found = versions.find((one) => one.loaded) || versions[0];
    return found ? (await found.get())() : null;
  };

  const extension = async () => {
    const [{ plugin }, apputils, docmanager, services, statusbar, widgets] = await Promise.all([
      import(new URL('plugin.js', here).href),
      take('@jupyterlab/apputils'),
      take('@jupyterlab/docmanager'),
      take('@jupyterlab/services'),
      take('@jupyterlab/statusbar'),
      take('@lumino/widgets'),
    ]);
    const made = plugin({ apputils, docmanager, services, statusbar, widgets });
    return () => ({ __esModule: true, default: [made] });
  };

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB['allotment-lab'] = {
    init: (shared) => {
      scope = shared;
    },
    get: (module) => {
      if (module !== './extension') {
        return Promise.reject(new Error(`allotment-lab has no module ${module}`));
      }
      return extension();
    },
  };
})();
