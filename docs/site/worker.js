// SPDX-License-Identifier: Apache-2.0
// A page that is opened from file:// may not start a worker: the worker of the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inside = frame.contentWindow;
      const load = (address) => new Promise((loaded) => {
        const script = frame.contentDocument.createElement("script");
        script.src = address;
        script.onload = loaded;
        frame.contentDocument.body.append(script);
      });
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
      inside.importScripts = (...addresses) =>
        addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve());
      this.started = load(url).then(() => inside);
    }
    postMessage(data) {
      this.started.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", {data})));
    }
  };
}
