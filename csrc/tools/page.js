(function () {
  'use strict';
  function each(selector, act) { document.querySelectorAll(selector).forEach(act); }
  function light(name, on) {
    each('[data-t="' + name + '"], [data-line="' + name + '"]', function (e) { e.classList.toggle('lit', on); });
    each('[data-e~="' + name + '"]', function (e) { e.classList.toggle('lit', on); });
  }
  each('[data-t], [data-line]', function (e) {
    var name = e.getAttribute('data-t') || e.getAttribute('data-line');
    e.addEventListener('mouseenter', function () { light(name, true); });
    e.addEventListener('mouseleave', function () { light(name, false); });
  });
  each('[data-show]', function (box) {
    box.addEventListener('change', function () {
      each('[data-relation="' + box.getAttribute('data-show') + '"]', function (row) { row.hidden = !box.checked; });
    });
  });
  var zoom = document.getElementById('zoom');
  if (zoom) {
    zoom.addEventListener('input', function () {
      document.getElementById('wide').style.width = 100 * Math.pow(2, zoom.value) + '%';
    });
  }
  document.getElementById('theme').addEventListener('click', function () {
    var root = document.documentElement;
    var dark = root.getAttribute('data-theme') === 'dark' ||
      (!root.hasAttribute('data-theme') ? matchMedia('(prefers-color-scheme: dark)').matches : false);
    root.setAttribute('data-theme', dark ? 'light' : 'dark');
  });
})();
