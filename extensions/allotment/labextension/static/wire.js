// The socket to this page's own notebook server, opened again whenever it closes. Returns whether it is open.
const FIRST_MS = 1000;
const LAST_MS = 30000;

export function follow(settings, heard) {
  let pause = FIRST_MS;
  let socket = null;
  const connect = () => {
    const token = settings.appendToken && settings.token ? `?token=${encodeURIComponent(settings.token)}` : '';
    socket = new settings.WebSocket(`${settings.wsUrl}allotment/notices${token}`);
    socket.onopen = () => {
      pause = FIRST_MS;
    };
    socket.onmessage = (event) => {
      const answer = (message) => {
        if (isOpen()) {
          socket.send(JSON.stringify(message));
        }
      };
      heard(JSON.parse(event.data), answer);
    };
    socket.onclose = () => {
      setTimeout(connect, pause);
      pause = Math.min(2 * pause, LAST_MS);
    };
  };
  const isOpen = () => socket !== null && socket.readyState === 1;
  connect();
  return isOpen;
}
