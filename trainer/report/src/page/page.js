'use strict';
(() => {
  const key = (row, column) => {
    const cell = row.cells[column];
    const text = cell ? cell.dataset.value ?? cell.textContent.trim() : '';
    const number = text === '' ? NaN : Number(text);
    return Number.isNaN(number) ? text : number;
  };
  // Numbers stand before words; what is not known stands last, either way.
  const compare = (a, b, sign) => {
    const rank = value => typeof value === 'number' ? 0 : value === '' || value === '—' ? 2 : 1;
    if (rank(a) !== rank(b)) return rank(a) - rank(b);
    return sign * (typeof a === 'number' ? a - b : a.localeCompare(b, undefined, { numeric: true }));
  };
  const sort = (table, column, direction) => {
    const sign = direction === 'descending' ? -1 : 1;
    const body = table.tBodies[0];
    const rows = [...body.rows].map(row => [key(row, column), row]);
    rows.sort((a, b) => compare(a[0], b[0], sign));
    body.append(...rows.map(pair => pair[1]));
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      if (place === column) head.setAttribute('aria-sort', direction);
      else head.removeAttribute('aria-sort');
    });
  };
  document.addEventListener('click', event => {
    const head = event.target.closest('th[data-column]');
    if (!head) return;
    const direction = head.getAttribute('aria-sort') === 'ascending' ? 'descending' : 'ascending';
    const table = head.closest('table');
    sort(table, head.cellIndex, direction);
    history.replaceState(null, '', `#sort=${table.id},${head.dataset.column},${direction}`);
  });
  const follow = () => {
    if (!location.hash.startsWith('#sort=')) return;
    const [id, column, direction] = decodeURIComponent(location.hash.slice(6)).split(',');
    const table = document.getElementById(id);
    const head = table && [...table.querySelectorAll('th[data-column]')].find(head => head.dataset.column === column);
    if (!head) return;
    sort(table, head.cellIndex, direction === 'descending' ? direction : 'ascending');
    table.scrollIntoView({ block: 'center' });
  };
  addEventListener('hashchange', follow);
  follow();
})();
