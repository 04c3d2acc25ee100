// Times, sizes and counts as people read them.

export function count(number, word) {
  return number === 1 ? `1 ${word}` : `${number} ${word}s`;
}

// A time of today as a time with its zone, of another day with its date too.
export function clock(moment) {
  const time = moment.toLocaleTimeString([], {
    hour: '2-digit',
    minute: '2-digit',
    timeZoneName: 'short',
  });
  const today = moment.toDateString() === new Date().toDateString();
  return today ? time : `${moment.toLocaleDateString([], { day: 'numeric', month: 'short' })} ${time}`;
}

// Milliseconds as the largest two units that say something; never negative.
export function span(ms) {
  const minutes = Math.max(Math.floor(ms / 60000), 0);
  const hours = Math.floor(minutes / 60);
  const days = Math.floor(hours / 24);
  if (days > 0) {
    return `${days} d ${hours % 24} h`;
  }
  return hours > 0 ? `${hours} h ${minutes % 60} min` : `${minutes} min`;
}

// Money that was told as exact text, to two decimals; what is less than a cent is said so. `round` down is
// for what is left, as nobody may count on more.
export function money(text, unit, round = Math.round) {
  const value = Number(text);
  const cents = round(value * 100 + 1e-7) / 100;
  return (value > 0 && cents === 0 ? `less than 0.01 ${unit}` : `${cents.toFixed(2)} ${unit}`).trim();
}

// The same with all its digits, and no needless zeros after the second.
export function exact(text) {
  const [whole, rest = ''] = String(text).split('.');
  return `${whole}.${rest.replace(/0+$/, '').padEnd(2, '0')}`;
}

export function size(bytes) {
  const gib = bytes / 2 ** 30;
  return gib >= 1 ? `${gib.toFixed(gib < 10 ? 1 : 0)} GiB` : `${Math.round(bytes / 2 ** 20)} MiB`;
}
