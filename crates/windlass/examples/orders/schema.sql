-- schema: orders, and a trigger that has each of them shipped.
DROP TABLE IF EXISTS orders;
CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, item text);
CREATE OR REPLACE FUNCTION ship_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM windlass.enqueue('order.ship', to_jsonb(NEW), queue => 'shipping');
  RETURN NEW;
END $$;
CREATE TRIGGER ship AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION ship_order()
